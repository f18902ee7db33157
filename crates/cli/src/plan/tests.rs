use super::SessionPlan;
use crate::{args::Given, failure::Failure};

fn given(pairs: &[(&'static str, &str)]) -> Given {
    let values = pairs.iter().map(|&(name, text)| (name, text.to_owned()));
    Given {
        values: values.collect(),
    }
}

fn refused(result: Result<SessionPlan, Failure>) -> String {
    match result {
        Err(Failure::Usage(text)) => text,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn what_does_not_fit_together_is_refused_with_a_remedy() {
    let cases: [(&[(&str, &str)], &str); 3] = [
        (&[], "--group"),
        (
            &[("group", "239.1.1.1@eth0"), ("iface", "eth1")],
            "give only one of them",
        ),
        (
            &[("group", "239.1.1.1"), ("spm_active", "20s")],
            "spm_ambient",
        ),
    ];
    for (pairs, expected) in cases {
        let text = refused(SessionPlan::new(&given(pairs)));
        assert!(text.contains(expected), "{text}");
    }
}
