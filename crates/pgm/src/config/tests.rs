use super::*;

#[test]
fn the_defaults_obey_their_own_table_and_rules() {
    assert_eq!(Config::builder().build(), Ok(Config::default()));
}

#[test]
fn every_parameter_reads_back_what_it_prints() {
    for parameter in PARAMETERS {
        let name = parameter.name;
        let text = Config::default().value(name).unwrap();
        assert_eq!(text, (parameter.default)(), "{name}");
        let mut builder = Config::builder();
        builder.set(name, &text).unwrap();
        assert_eq!(builder.build(), Ok(Config::default()), "{name}");
        assert!(!parameter.help.is_empty() && !(parameter.range)().is_empty());
        assert!(!parameter.help.ends_with('.'), "{name}: help is one clause");
    }
}

#[test]
fn names_are_unique_and_take_dashes() {
    for (i, one) in PARAMETERS.iter().enumerate() {
        assert!(PARAMETERS[..i].iter().all(|other| other.name != one.name));
    }
    let mut config = Config::default();
    config.set("spm-ambient", "9s").unwrap();
    assert_eq!(config.value("spm-ambient").as_deref(), Some("9s"));
}

#[test]
fn text_forms_are_exact() {
    let mut builder = Config::builder();
    for (name, text, printed) in [
        ("nak_backoff_min", "200us", "200us"),
        ("nak_backoff_max", "1.5ms", "1500us"),
        ("peer_expiry", "2min", "120s"),
        ("elimination_interval", "0", "0s"),
        ("nak_rdata_interval", "auto", "auto"),
        ("tx_window_bytes", "64MiB", "64MiB"),
        ("object_window_bytes", "1MiB", "1MiB"),
        ("mtu", "9kB", "9000"),
        ("mtu", "1500", "1500"),
        ("rate", "100MB/s", "100MB/s"),
        ("rate", "1Gbit/s", "125MB/s"),
        ("rate", "0", "0"),
        ("rate", "1_000B/s", "1kB/s"),
        ("rate", "100M", "12500kB/s"),
        ("peer_expiry", "2m", "120s"),
        ("peer_expiry", "90", "90s"),
        ("tx_window_bytes", "64M", "62500KiB"),
        ("ncfs_per_s_max", "20k", "20000"),
        ("spm_heartbeat", "100ms,1.3s", "100ms,1300ms"),
        ("spm_heartbeat", "", ""),
        ("repair_share", "25%", "25"),
        ("strict_pgm", "on", "true"),
        ("late_join", "window", "window"),
    ] {
        builder.set(name, text).unwrap();
        assert_eq!(
            builder.config.value(name).unwrap(),
            printed,
            "{name}={text}"
        );
    }
}

#[test]
fn texts_that_mean_nothing_are_refused() {
    let mut builder = Config::builder();
    for (name, text) in [
        ("mtu", ""),
        ("mtu", "-1"),
        ("mtu", "1500 apples"),
        ("mtu", "1.0.0"),
        ("mtu", "."),
        ("mtu", "99999999999999999999999999999999999999999"),
        ("rate", "1bit/s"),
        ("rate", "fast"),
        ("rate", "1000"),
        ("nak_backoff_max", "0.1ns"),
        ("spm_heartbeat", "1s,,2s"),
        ("strict_pgm", "maybe"),
    ] {
        let error = builder.set(name, text).unwrap_err();
        assert!(
            matches!(error, ConfigError::NotUnderstood { .. }),
            "{name}={text}: {error}"
        );
    }
    let seventeen = ["1s"; 17].join(",");
    assert!(builder.set("spm_heartbeat", &seventeen).is_err());
    let unknown = builder.set("mtv", "1500").unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "there is no option or parameter called \"mtv\""
    );
    assert_eq!(builder, Config::builder());
}

#[test]
fn s3_3_the_window_is_less_than_half_the_number_space() {
    let mut config = Config::default();
    for name in ["tx_window_sqns", "rx_window_sqns"] {
        config.set(name, &(1 << 24).to_string()).unwrap();
        for sqns in [(1_u32 << 24) + 1, (1 << 31) - 1, u32::MAX] {
            assert!(config.set(name, &sqns.to_string()).is_err());
        }
    }
}

#[test]
fn ranges_and_rules_name_what_to_change() {
    let mut config = Config::default();
    let error = config.set("mtu", "70000").unwrap_err();
    assert_eq!(error.to_string(), "mtu: 70000 is outside 576..65535");
    let error = config.set("peer_expiry", "20s").unwrap_err();
    assert_eq!(
        error.to_string(),
        "spm_ambient is 10s: it must be at most a third of peer_expiry, or a lost SPM ends the \
         session; peer_expiry is 20s"
    );
    assert_eq!(config, Config::default());
    let error = Config::builder().fragments_max(0).build().unwrap_err();
    assert_eq!(error.to_string(), "fragments_max: 0 is outside 1..1048576");
    for time in ["10s", "2001ms"] {
        let error = config.set("elimination_interval", time).unwrap_err();
        assert!(error.to_string().contains("a fifth of repair_time_max"));
    }
    config.set("elimination_interval", "2s").unwrap();
    let error = config.set("nak_rdata_interval", "1s").unwrap_err();
    assert!(error.to_string().contains("must not exceed nak_rdata"));
    let beats = Intervals::new(&[Duration::ZERO]).unwrap();
    assert!(Config::builder().spm_heartbeat(beats).build().is_err());
}

#[test]
fn groups_are_of_sizes_that_the_code_and_the_windows_have() {
    let refusal = |settings: &[(&str, &str)]| {
        let mut builder = Config::builder();
        for (name, text) in settings {
            builder.set(name, text).unwrap();
        }
        match builder.build() {
            Ok(_) => None,
            Err(ConfigError::Conflict { name, .. }) => Some(name),
            Err(other) => panic!("{other}"),
        }
    };
    for size in ["0", "2", "64", "128"] {
        assert_eq!(refusal(&[("fec_group", size)]), None, "{size}");
    }
    for size in ["1", "3", "100"] {
        assert_eq!(refusal(&[("fec_group", size)]), Some("fec_group"), "{size}");
    }
    let group = ("fec_group", "64");
    for small in ["tx_window_bytes", "object_window_bytes"] {
        assert_eq!(refusal(&[group, (small, "100KiB")]), Some(small));
    }
    for (name, text) in [
        ("tx_window_sqns", "100"),
        ("fec_proactive", "65"),
        ("fec_proactive_max", "65"),
    ] {
        assert_eq!(refusal(&[group, (name, text)]), Some(name));
    }
}

#[test]
fn a_source_of_objects_has_a_window_of_its_own() {
    let mut builder = Config::builder();
    builder.set("object_window_bytes", "1MiB").unwrap();
    let config = builder.build().unwrap();
    assert_eq!(config.tx_window_bytes(), 64 << 20);
    let objects = config.for_objects();
    assert_eq!(objects.tx_window_bytes(), 1 << 20);
    assert_eq!(objects.tx_window_sqns(), 4096);
}
