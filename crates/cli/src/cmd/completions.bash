
# Files where a command takes files, and interfaces where it takes interfaces: what the generated
# function above cannot know.
_towline_interfaces() {
    compgen -W "$(command ls /sys/class/net 2>/dev/null)" -- "$1"
}

_towline_processes() {
    command towline top --once --json 2>/dev/null | command grep -o '"pid": *[0-9]*' |
        command grep -o '[0-9]*$'
}

_towline_places() {
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" kind=""
    # The shell splits words at colons: ring:eth0 comes as three.
    if [[ ${cur} == : ]]; then
        kind="${prev}" cur=""
    elif [[ ${prev} == : ]]; then
        kind="${COMP_WORDS[COMP_CWORD-2]}"
    fi
    case "${kind}" in
        ring | ring2 | int | xdp)
            COMPREPLY=($(_towline_interfaces "${cur}"))
            return
            ;;
        pcap | pcapng)
            COMPREPLY=($(compgen -f -- "${cur}"))
            return
            ;;
    esac
    case "${prev}" in
        -i | --iface)
            COMPREPLY=($(_towline_interfaces "${cur}"))
            return
            ;;
    esac
    if [[ ${cur} != -* && ${prev} != -* && ${COMP_CWORD} -ge 2 ]]; then
        case "${COMP_WORDS[1]}" in
            send | recv)
                COMPREPLY=($(compgen -f -- "${cur}"))
                return
                ;;
            capture | replay | stats)
                COMPREPLY=($(_towline_interfaces "${cur}") $(compgen -f -- "${cur}"))
                return
                ;;
            ifaces)
                COMPREPLY=($(_towline_interfaces "${cur}"))
                return
                ;;
            top | stat)
                # Of stat, the second word is a counter, which only the process knows.
                if [[ ${COMP_WORDS[1]} == top || ${COMP_CWORD} -eq 2 ]]; then
                    COMPREPLY=($(compgen -W "$(_towline_processes)" -- "${cur}"))
                    return
                fi
                ;;
        esac
    fi
    _towline "$@"
}

complete -F _towline_places -o bashdefault -o default -o filenames towline
