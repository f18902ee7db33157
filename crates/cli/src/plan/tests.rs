use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use clap::CommandFactory as _;
use towline::PARAMETERS;

use super::{SessionPlan, Settings};
use crate::{
    args::{Args, Given, SESSION_OPTIONS},
    failure::Failure,
};

fn given(pairs: &[(&'static str, &str)], config: Option<PathBuf>) -> Given {
    let values = pairs.iter().map(|&(name, text)| (name, text.to_owned()));
    Given {
        values: values.collect(),
        config,
    }
}

fn refused(result: Result<SessionPlan, Failure>) -> String {
    match result {
        Err(Failure::Usage(text)) => text,
        other => panic!("not refused: {other:?}"),
    }
}

/// A configuration file of this test alone.
fn file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("towline-{}-{name}.toml", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

/// The long flags of a command and of all below it, in `snake_case`.
fn long_flags(command: &clap::Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter_map(clap::Arg::get_long);
    let below = command.get_subcommands().flat_map(long_flags);
    own.map(|flag| flag.replace('-', "_"))
        .chain(below)
        .collect()
}

#[test]
fn every_flag_of_a_session_is_a_key_of_the_configuration_file_and_nothing_else_is() {
    let keys = SESSION_OPTIONS
        .iter()
        .map(|option| (option.name, option.default));
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    for (name, _) in keys {
        texts.insert(name, "1".to_owned());
    }
    for parameter in PARAMETERS {
        texts.insert(parameter.name, (parameter.default)());
    }
    let lines: Vec<String> = texts
        .iter()
        .map(|(name, text)| format!("{name} = {text:?}"))
        .collect();
    let path = file("all", &lines.join("\n"));
    let settings = Settings::resolve(&given(&[], Some(path.clone()))).unwrap();
    assert_eq!(settings.config().unwrap(), towline::Config::default());
    assert!(texts.keys().all(|name| settings.text(name).is_some()));

    // Every flag that any command has is tried as a key; those of sessions alone are taken.
    let mut names = long_flags(&Args::command());
    names.insert("speed".to_owned());
    names.extend(texts.keys().map(|&name| name.to_owned()));
    let taken = names.into_iter().filter(|name| {
        std::fs::write(&path, format!("{name} = 1")).unwrap();
        match Settings::resolve(&given(&[], Some(path.clone()))) {
            Ok(settings) => settings.text(name).is_some(),
            Err(Failure::Usage(text)) => {
                assert!(
                    text.contains(&format!("unknown setting {name:?}")),
                    "{text}"
                );
                false
            }
            Err(other) => panic!("{other:?}"),
        }
    });
    assert!(taken.eq(texts.keys().copied()), "keys beside {texts:?}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_flag_goes_before_the_file_and_the_file_before_the_default() {
    let path = file(
        "order",
        "group = '239.1.1.1:80'\nhops = 7\nmtu = 9000\nrate = '1MB/s'",
    );
    let plan = SessionPlan::new(&given(&[("mtu", "1400")], Some(path.clone()))).unwrap();
    assert_eq!((plan.hops, plan.group.port(), plan.dscp), (7, 80, 0));
    assert_eq!(
        (plan.config.mtu(), plan.config.rate().limit()),
        (1400, 1_000_000)
    );

    std::fs::write(&path, "group = '239.1.1.1'\nhops = 'many'").unwrap();
    let text = refused(SessionPlan::new(&given(&[], Some(path.clone()))));
    assert!(
        text.starts_with(&format!("{}: hops:", path.display())),
        "{text}"
    );
    std::fs::remove_file(path).unwrap();
}

#[test]
fn what_does_not_fit_together_is_refused_with_a_remedy() {
    let cases: [(&[(&str, &str)], &str); 3] = [
        (&[], "--group"),
        (
            &[("group", "239.1.1.1@eth0"), ("iface", "eth1")],
            "leave one out",
        ),
        (
            &[("group", "239.1.1.1"), ("spm_active", "20s")],
            "spm_ambient",
        ),
    ];
    for (pairs, expected) in cases {
        let text = refused(SessionPlan::new(&given(pairs, None)));
        assert!(text.contains(expected), "{text}");
    }
}
