//! The remedies of the library's errors, worded with this command's flags.

use towline::{Missing, Remedy};

use crate::args::with_flags;

/// Makes the text of an error: the problem, then the remedy if there is one.
pub(super) fn worded(problem: String, remedy: Option<&Remedy>) -> String {
    with_flags(&match remedy {
        Some(remedy) => format!("{problem}; {}", words(remedy)),
        None => problem,
    })
}

fn words(remedy: &Remedy) -> String {
    match remedy {
        Remedy::ChooseInterface { candidates } => format!(
            "several interfaces are possible; choose one with --iface: {}",
            candidates.join(", ")
        ),
        Remedy::ListInterfaces { missing } => match missing {
            Missing::Interface => {
                "choose an interface that this host has; `towline ifaces` lists them".into()
            }
            Missing::UsableInterface => {
                "choose another interface; `towline ifaces` lists them".into()
            }
            Missing::Address => {
                "choose an address that this host has; `towline ifaces` lists them".into()
            }
        },
        Remedy::SetUpInterface => "set an interface up (`towline ifaces` shows what there is), or \
                                   stay on this machine with --iface lo"
            .into(),
        Remedy::StopOtherSender => {
            "another sender, or a receiver of a unicast session, uses this address and port on \
             this host: stop it, give this sender and its receivers another port (-g GROUP:PORT), \
             or give this sender another address (-i ADDRESS)"
                .into()
        }
        Remedy::AllowRawIp => "raw IP needs CAP_NET_RAW: run as root, run `setcap cap_net_raw+ep \
                               PROGRAM` once as root, or leave --encapsulation out at both ends"
            .into(),
        Remedy::NameSenders => "name the senders with --from ADDRESS[/BITS], allow all with \
                                --from any, or give both ends a --key-file"
            .into(),
        Remedy::StartReflector => "start `towline rtt reflect --over tcp` there, or check the \
                                   address and the way to it"
            .into(),
        Remedy::StartSweepServer => {
            "start `towline udp serve` there, and let its port through the firewalls, for TCP and \
             for UDP; or check the address and the way to it"
                .into()
        }
        Remedy::StartResponder => "start `towline tcp serve` there, or check the address and the \
                                   way to it"
            .into(),
        Remedy::StopOtherSearch => {
            "if another `towline reach` runs on this host, end it, or give both ends another --port"
                .into()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_the_library_names_become_flags() {
        let remedy = Remedy::from("leave out `strict_pgm` or `key_file`; not `ls` or `pgm_portal`");
        assert_eq!(
            worded("cannot".into(), Some(&remedy)),
            "cannot; leave out --strict-pgm or --key-file; not `ls` or `pgm_portal`"
        );
    }

    #[test]
    fn remedies_that_mean_a_flag_name_it() {
        let candidates = vec!["eth0".to_owned(), "eth1".to_owned()];
        let missing = Missing::Address;
        let remedies = [
            (
                Remedy::ChooseInterface { candidates },
                "--iface: eth0, eth1",
            ),
            (Remedy::ListInterfaces { missing }, "`towline ifaces`"),
            (Remedy::SetUpInterface, "--iface lo"),
            (Remedy::StopOtherSender, "-g GROUP:PORT"),
            (Remedy::NameSenders, "--from any"),
            (Remedy::StartReflector, "`towline rtt reflect --over tcp`"),
            (Remedy::StartSweepServer, "`towline udp serve`"),
            (Remedy::StartResponder, "`towline tcp serve`"),
            (Remedy::StopOtherSearch, "--port"),
        ];
        for (remedy, flag) in remedies {
            let text = worded("cannot".into(), Some(&remedy));
            assert!(
                text.starts_with("cannot; ") && text.contains(flag),
                "{text}"
            );
            let plain = remedy.to_string();
            assert!(
                !plain.contains("--") && !plain.contains("towline"),
                "{plain}"
            );
        }
    }
}
