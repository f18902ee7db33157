use std::{collections::BTreeMap, path::PathBuf};

use towline::PARAMETERS;

use super::{SessionPlan, Settings};
use crate::{
    args::{Given, SESSION_OPTIONS},
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

#[test]
fn every_flag_is_a_key_of_the_configuration_file_and_nothing_else_is() {
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

    std::fs::write(&path, "speed = 3").unwrap();
    let text = refused(SessionPlan::new(&given(&[], Some(path.clone()))));
    assert!(text.contains("speed"), "{text}");
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
    assert_eq!((plan.config.mtu(), plan.config.rate()), (1400, 1_000_000));

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
            &[("group", "239.1.1.1"), ("nak_backoff_min", "9s")],
            "nak_backoff_max",
        ),
    ];
    for (pairs, expected) in cases {
        let text = refused(SessionPlan::new(&given(pairs, None)));
        assert!(text.contains(expected), "{text}");
    }
}
