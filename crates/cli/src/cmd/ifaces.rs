//! `towline ifaces`.

use towline::{Interface, Interfaces};

use crate::{
    args::IfacesArgs,
    failure::{Failure, Verdict},
    report::{InterfaceRow, InterfacesReport, Output},
};

pub(super) fn run(args: &IfacesArgs, output: &Output) -> Result<Verdict, Failure> {
    let all = Interfaces::read().map_err(|error| Failure::Environment(error.to_string()))?;
    let all = all.with_drivers();
    let shown = match &args.which {
        None => all,
        Some(which) => {
            let wanted = all
                .list()
                .iter()
                .filter(|interface| is_called(interface, which));
            let wanted: Vec<Interface> = wanted.cloned().collect();
            if wanted.is_empty() {
                let text = format!(
                    "no interface is called {which} or has that address; `towline ifaces` lists \
                     those there are"
                );
                return Err(Failure::Usage(text));
            }
            Interfaces::from_list(wanted)
        }
    };
    output.finish(&InterfacesReport {
        interfaces: shown.list().iter().map(InterfaceRow::from).collect(),
        table: shown.table(),
    })?;
    Ok(Verdict::Done)
}

fn is_called(interface: &Interface, which: &str) -> bool {
    interface.name == which
        || interface
            .addresses
            .iter()
            .any(|address| address.ip.to_string() == which)
}
