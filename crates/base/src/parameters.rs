//! The shares of networks: rows of the one table of parameters.

// name: type = value, unit, role [set by flag], source, help
crate::parameters! {
    NETWORK_SHARE: u32 = 75, "%", Both,
        "judgement: all hosts of a LAN are one network, and hosts beyond it must not be shut out",
        "percent of all places that the addresses of a network (an IPv6 /64) have together, \
         wherever a host has a share; and of the time of a server that serves one host at a time";
    NETWORK_PATIENCE: u32 = 150, "%", Both,
        "judgement: a host with many addresses gains little, and its neighbours lose little",
        "what the addresses of a network (an IPv6 /64) have together, in percent of what one host \
         has: how often they are dialled, and how long guests at them are waited for";
}
