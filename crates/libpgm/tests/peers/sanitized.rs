//! The programs of `tests/c` on our library under the sanitizers of addresses, of undefined
//! behaviour and of leaks: nothing is told, and each prints what it prints without them.

use std::path::Path;

use super::{
    Ours, alone, compiled, compiled_as, finish, lab, on,
    talk::{Talk, all_received},
    text,
};

const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

#[test]
fn every_function_is_called_without_a_fault() {
    alone(|| {
        let (Some(plain), Some(sanitized)) = (
            compiled("api"),
            compiled_as("api-sanitized", "api", &SANITIZERS),
        ) else {
            return;
        };
        let lab = lab(0);
        let address = lab.host(0).ipv4().to_string();
        let run = |program: &Path| {
            let child = on(lab.host(0), Ours, program, &address).spawn().unwrap();
            finish(child)
        };
        assert_eq!(run(&sanitized), run(&plain));
    });
}

#[test]
fn messages_are_lent_and_freed_without_a_fault() {
    alone(|| {
        let Some(program) = compiled_as("talk-sanitized", "talk", &SANITIZERS) else {
            return;
        };
        let lab = lab(2);
        for how in ["recvmsgv epoll", "recvmsg poll", "recvfrom select"] {
            let kind = "long";
            let text = Talk {
                kind,
                ..Talk::by(how)
            }
            .run(&lab, (Ours, Ours), &program);
            assert!(text.contains("wrong 0\n"), "{how}: {text}");
            assert!(text.contains(&all_received()), "{how}: {text}");
        }
    });
}

/// Without it, a sanitizer that is switched off would look like a library without a fault.
#[test]
fn a_socket_that_is_never_closed_is_found() {
    alone(|| {
        let Some(program) = compiled_as("leak-sanitized", "leak", &SANITIZERS) else {
            return;
        };
        let lab = lab(0);
        let output = on(lab.host(0), Ours, &program, "").output().unwrap();
        let said = text(&output);
        assert!(!output.status.success(), "{said}");
        assert!(
            said.contains("LeakSanitizer") && said.contains("pgm_socket"),
            "{said}"
        );
    });
}
