//! Where a lab may be built: root builds it in its own process, other users inside a user
//! namespace.

use std::{
    any, env, io,
    process::{self, Command, Stdio},
};

use sys::{
    errno::{EINVAL, ENOSPC, EPERM},
    namespace::{self, CommandExt as _, Namespace, Refusal, Step},
    netlink::Rtnetlink,
};

use crate::{LabError, host::in_namespace};

/// Makes sure that this process may build labs. A process that is not root moves into a user
/// namespace. Call this at the very start of `main`, before any thread is started. When other
/// threads run already, this function starts the program again inside the namespace and does not
/// return.
///
/// # Errors
/// [`LabError::NotPermitted`], which says what to change; the process stays as it was. Also when
/// the program cannot be started again, or the loopback interface cannot be switched on.
pub fn enter_user_namespace_or_explain() -> Result<(), LabError> {
    if check_permitted().is_ok() {
        return Ok(());
    }
    match namespace::enter_user_namespace() {
        Ok(()) => switch_loopback_on(),
        Err(refusal) if refusal.step == Step::UserNamespace && refusal.errno == EINVAL => {
            let error = |cause| LabError::os("start this program again", cause);
            let program = env::current_exe().map_err(error)?;
            let status = Command::new(program)
                .args(env::args_os().skip(1))
                .user_namespace()
                .status()
                .map_err(error)?;
            process::exit(status.code().unwrap_or(1));
        }
        Err(refusal) => Err(LabError::refused(refusal)),
    }
}

/// Runs the body of a `#[test]` in an empty network namespace. The body may build labs there, and
/// nothing that it runs outside a host reaches the real network. For an ordinary user, this
/// function starts the test program again inside a user namespace, for this one test. Where the
/// machine forbids that, it prints the reason and does not run the body.
///
/// Call it with a closure, as the only statement of the test: the name of the closure's type tells
/// which test to run again.
///
/// **Panics**: when the body panics, here or in the program that was started again.
pub fn isolated<F: FnOnce() + Send>(body: F) {
    if check_permitted().is_ok() {
        let blank = Namespace::network().expect("network namespaces are permitted");
        let entered = in_namespace(&blank, || {
            switch_loopback_on().expect("the loopback interface of a new namespace goes up");
            body();
        });
        entered.expect("a namespace that was just made can be entered");
        return;
    }
    let test = test_path(any::type_name::<F>());
    if let Err(refusal) = namespace::probe_user_namespace() {
        skip(&LabError::refused(refusal));
        return;
    }
    assert!(
        env::var_os(INSIDE).is_none(),
        "inside its user namespace {test} may still not make network namespaces"
    );
    let output = run_again(test).unwrap_or_else(|error| panic!("cannot run {test} again: {error}"));
    let text = String::from_utf8_lossy(&output.stdout);
    // The test program also succeeds when the name matches no test.
    let ran = text.contains("test result: ok. 1 passed");
    if !(output.status.success() && ran) {
        let text = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
        // The output is indented, so that nobody takes the inner summary for the outer one.
        panic!(
            "{test} inside a user namespace:\n  | {}",
            text.replace('\n', "\n  | ")
        );
    }
    repeat(&text);
}

/// Prints what the inner test printed, which may be the reason for a skip.
#[expect(clippy::print_stdout, reason = "the test's own words")]
fn repeat(text: &str) {
    let printed = text
        .split_once(" stdout ----\n")
        .and_then(|(_, rest)| rest.split_once("\n\nsuccesses:\n"));
    if let Some((printed, _)) = printed {
        println!("{printed}");
    }
}

fn run_again(test: &str) -> io::Result<process::Output> {
    Command::new(env::current_exe()?)
        .args([
            test,
            "--exact",
            "--include-ignored",
            "--show-output",
            "--test-threads=1",
        ])
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .user_namespace()
        .dies_with_its_starter()
        .output()
}

/// Returns the test's name in its test program: `crate::module::test::{{closure}}` without crate
/// and closure.
fn test_path(type_name: &str) -> &str {
    let path = type_name.split("::{{closure}}").next().unwrap_or(type_name);
    path.split_once("::").map_or(path, |(_crate, path)| path)
}

#[expect(clippy::print_stdout, reason = "a test that is skipped says why")]
fn skip(reason: &LabError) {
    // The suite counts a test that prints this line as skipped.
    println!("skipped: {reason}");
}

/// Checks that this process may make network namespaces.
pub(crate) fn check_permitted() -> Result<(), LabError> {
    match Namespace::network() {
        Ok(_) => Ok(()),
        // The kernel answers ENOSPC where a limit on the number of namespaces is reached.
        Err(error) if matches!(error.raw_os_error(), Some(EPERM | ENOSPC)) => {
            Err(LabError::refused(Refusal {
                step: Step::NetworkNamespace,
                errno: error.raw_os_error().unwrap_or(0),
            }))
        }
        Err(error) => Err(LabError::os("make a network namespace", error)),
    }
}

fn switch_loopback_on() -> Result<(), LabError> {
    let switch_on = || {
        let mut netlink = Rtnetlink::open()?;
        let index = netlink.link_index("lo")?;
        netlink.set_up(index, true)
    };
    Ok(switch_on()?)
}

/// The environment variable that is set in a test program that was started again.
const INSIDE: &str = "TOWLINE_LAB_INSIDE";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closure_names_its_test() {
        fn name_of<F: FnOnce()>(_: F) -> &'static str {
            test_path(any::type_name::<F>())
        }
        assert_eq!(name_of(|| {}), "isolation::tests::a_closure_names_its_test");
    }

    #[test]
    fn a_test_runs_where_labs_may_be_built() {
        isolated(|| {
            assert!(check_permitted().is_ok());
            let links = Rtnetlink::open().unwrap().links().unwrap();
            let mut up = links.iter().filter(|link| link.flags.is_up());
            assert!(up.all(|link| link.flags.is_loopback()), "{links:?}");
        });
    }
}
