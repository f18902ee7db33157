//! What each command does. Each has a thin file, which opens what the plan says, moves data between
//! the library and standard input and output, and reports.

use crate::{
    args::{Command, FramesCommand, LoadCommand, RttCommand, TcpCommand, UdpCommand},
    failure::{Failure, Verdict},
    plan::{
        CapturePlan, ClockPlan, DemoPlan, FramesRecvPlan, FramesSendPlan, LoadRecvPlan,
        LoadSendPlan, MtuPlan, PlainPlan, PublishPlan, ReachPlan, RecvPlan, RelayPlan, ReplayPlan,
        RttPlotPlan, RttReflectPlan, RttRunPlan, SendPlan, StatsPlan, StatsSweepPlan,
        SubscribePlan, TcpServePlan, TcpWatchPlan, TcpWritesPlan, UdpPlotPlan, UdpRunPlan,
        UdpServePlan,
    },
    report::Output,
};

mod capture;

mod completions;

mod clock;

mod demo;

mod docs;

mod event;

mod frames_advise;

mod frames_display;

mod frames_recv;

mod frames_send;

mod frames_sinks;

mod frames_source;

mod hook;

mod ifaces;

mod incoming;

mod input;

mod intervals;

mod leftovers;

mod load_recv;

mod load_send;

mod man;

mod mtu;

mod plain;

mod progress;

mod publish;

mod reach;

mod recv;

mod relay;

mod replay;

mod remedy;

mod rtt;

mod screen;

mod send;

mod senders;

mod spool;

mod stat;

mod stats;

mod station;
pub(crate) use station::TICK;

mod subscribe;

mod tcp;

mod top;

mod udp;

mod writer;

/// Plans and runs one command.
pub(crate) fn run(command: &Command, output: &Output) -> Result<Verdict, Failure> {
    let has_many_peers = matches!(
        command,
        Command::Send(_)
            | Command::Recv(_)
            | Command::Pub(_)
            | Command::Relay(_)
            | Command::Load(LoadCommand::Send(_))
            | Command::Frames(FramesCommand::Send(_))
    );
    if has_many_peers && sys::open_files_max().is_some_and(|max| max < OPEN_FILES_MAX) {
        // Each peer takes descriptors. If the system permits too few, fewer peers are served.
        let _as_far_as_permitted = sys::limit_open_files(OPEN_FILES_MAX);
    }
    match command {
        Command::Send(args) if args.plain => plain::run(&PlainPlan::new(args)?, output),
        Command::Send(args) => send::run(&SendPlan::new(args, output.is_dry_run())?, output),
        Command::Recv(args) if args.leftovers => {
            let directory = args.directory.as_deref().expect("the flag requires it");
            leftovers::run(directory, args.clean, output)
        }
        Command::Recv(args) => recv::run(&RecvPlan::new(args)?, output),
        Command::Pub(args) => publish::run(&PublishPlan::new(args)?, output),
        Command::Sub(args) => subscribe::run(&SubscribePlan::new(args)?, output),
        Command::Relay(args) => relay::run(&RelayPlan::new(args)?, output),
        Command::Load(LoadCommand::Send(args)) => load_send::run(&LoadSendPlan::new(args)?, output),
        Command::Load(LoadCommand::Recv(args)) => load_recv::run(&LoadRecvPlan::new(args)?, output),
        Command::Frames(FramesCommand::Send(args)) => {
            frames_send::run(&FramesSendPlan::new(args)?, output)
        }
        Command::Frames(FramesCommand::Recv(args)) => {
            frames_recv::run(&FramesRecvPlan::new(args)?, output)
        }
        Command::Frames(FramesCommand::Advise(args)) => frames_advise::run(args, output),
        Command::Capture(args) => capture::run(&CapturePlan::new(args)?, output),
        Command::Replay(args) => replay::run(&ReplayPlan::new(args)?, output),
        Command::Stats(args) => match args.sweep {
            Some(by) => stats::sweep(&StatsSweepPlan::new(args, by)?, output),
            None => stats::run(&StatsPlan::new(args)?, output),
        },
        Command::Rtt(RttCommand::Reflect(args)) => {
            rtt::reflect(&RttReflectPlan::new(args)?, output)
        }
        Command::Rtt(RttCommand::Run(args)) => rtt::run(&RttRunPlan::new(args)?, output),
        Command::Rtt(RttCommand::Plot(args)) => rtt::plot(&RttPlotPlan::new(args)?, output),
        Command::Mtu(args) => mtu::run(&MtuPlan::new(args)?, output),
        Command::Udp(UdpCommand::Serve(args)) => udp::serve(&UdpServePlan::new(args)?, output),
        Command::Udp(UdpCommand::Run(args)) => udp::run(&UdpRunPlan::new(args)?, output),
        Command::Udp(UdpCommand::Plot(args)) => udp::plot(&UdpPlotPlan::new(args)?, output),
        Command::Tcp(TcpCommand::Watch(args)) => tcp::watch(&TcpWatchPlan::new(args)?, output),
        Command::Tcp(TcpCommand::Writes(args)) => tcp::writes(&TcpWritesPlan::new(args)?, output),
        Command::Tcp(TcpCommand::Serve(args)) => tcp::serve(&TcpServePlan::new(args), output),
        Command::Reach(args) => reach::run(&ReachPlan::new(args)?, output),
        Command::Clock(args) => clock::run(&ClockPlan::new(args), output),
        Command::Ifaces(args) => ifaces::run(args, output),
        Command::Top(args) => top::run(args, output),
        Command::Stat(args) => stat::run(args, output),
        Command::Demo(args) => demo::run(&DemoPlan::new(args)?, output),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => man::run(args, output),
        Command::Docs(args) => docs::run(args, output),
    }
}

/// Converts an error of the library. Its text names the operation and the cause; the remedy is
/// added here, with this command's flags.
impl From<towline::Error> for Failure {
    fn from(error: towline::Error) -> Self {
        match error {
            towline::Error::Config(error) => Self::Usage(error.to_string()),
            error => Self::Environment(remedy::worded(error.problem(), error.remedy().as_ref())),
        }
    }
}

/// Converts an error of `gauge` in the same way as an error of the library.
impl From<gauge::Error> for Failure {
    fn from(error: gauge::Error) -> Self {
        match error {
            gauge::Error::Session(error) => error.into(),
            error => Self::Environment(remedy::worded(error.problem(), error.remedy().as_ref())),
        }
    }
}

impl From<towline::SystemError> for Failure {
    fn from(error: towline::SystemError) -> Self {
        Self::Environment(remedy::worded(error.problem(), error.remedy()))
    }
}

/// Descriptors that a command with many peers asks for. They are enough for 10,000 transfers with 8
/// descriptors each, and for 10,000 senders that wait, with one each.
const OPEN_FILES_MAX: u64 = 131_072;
