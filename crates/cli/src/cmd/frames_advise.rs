//! `towline frames advise`.

use gauge::frames::{Advice, FRAME_HEADER_BYTES, FrameLoad, FramesAsked, PathFacts};
use towline::{FramePublisher, Interface, Interfaces};

use crate::{
    args::FramesAdviseArgs,
    failure::{Failure, Verdict},
    report::{FramesAdviseReport, Output},
};

pub(super) fn run(args: &FramesAdviseArgs, output: &Output) -> Result<Verdict, Failure> {
    let all = Interfaces::read().map_err(|error| Failure::Environment(error.to_string()))?;
    let all = all.with_drivers();
    let interface = choose(all.list(), args.iface.as_deref())?;
    let mut path = PathFacts::read(interface);
    path.bits_per_s = args.link.or(path.bits_per_s);
    let interval = args.per_second.interval();
    let asked = FramesAsked {
        load: FrameLoad {
            frame_bytes: args.size.bytes as u64,
            frames_per_s: args.per_second.0,
            mtu_bytes: args.mtu.unwrap_or(path.mtu_bytes),
            is_ipv6: false,
            header_bytes: FRAME_HEADER_BYTES,
        },
        deadline: args
            .deadline
            .unwrap_or_else(|| FramePublisher::usual_deadline(interval)),
        pause: args.pause,
        packet_loss: args.packet_loss.share(),
        packets_per_s: args.packets_per_second,
    };
    let advice = Advice::of(&asked, path);
    let is_fine = advice.findings.is_empty();
    output.finish(&FramesAdviseReport::new(args.size, args.per_second, advice))?;
    Ok(Verdict::of_session(false, is_fine))
}

fn choose<'a>(list: &'a [Interface], name: Option<&str>) -> Result<&'a Interface, Failure> {
    match name {
        Some(name) => {
            let found = list.iter().find(|it| it.name == name);
            found.ok_or_else(|| {
                Failure::Usage(format!(
                    "--iface: no interface is called {name}; `towline ifaces` lists those there are"
                ))
            })
        }
        None => {
            let routed = list
                .iter()
                .find(|it| it.default_route_v4 || it.default_route_v6);
            let any = || list.iter().find(|it| it.flags.up);
            let nothing =
                || Failure::Environment("no interface is up: name one with --iface".to_owned());
            routed.or_else(any).ok_or_else(nothing)
        }
    }
}
