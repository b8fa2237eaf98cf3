//! Tests of the case folders: the output of `check`, `plan` and `run` equals the folder's `expected.snap`.

use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use rye_snapshots::{Case, discover};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    match discover(&root) {
        Ok(cases) => {
            let trials = cases.into_iter().map(|case| Trial::test(case.name.clone(), move || compare(&case)));
            libtest_mimic::run(&arguments, trials.collect()).exit_code()
        }
        Err(error) => {
            let broken = Trial::test("discover", move || Err(Failed::from(error)));
            libtest_mimic::run(&arguments, vec![broken]).exit_code()
        }
    }
}

/// Checks that the output of a case is deterministic, and compares the output with the snapshot of the case.
fn compare(case: &Case) -> Result<(), Failed> {
    let output = case.output()?;
    if output != case.output()? {
        return Err("two runs of this case differ".into());
    }
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(&case.folder);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("expected", output));
    Ok(())
}
