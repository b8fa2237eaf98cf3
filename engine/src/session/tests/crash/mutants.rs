//! Disks that skip syncs. A kill alone never reveals a skipped sync; a power failure must.

use super::scenarios::{self, CrashScenario};
use super::{Interruption, check_interrupted_run, undisturbed};
use crate::store::disk::{Survival, SyncKind};

/// Returns the first operation at which a scenario has a different result, if any.
fn noticed(
    scenario: &'static CrashScenario,
    left_out: &'static [SyncKind],
    (survival, stride): (Survival, usize),
) -> Option<(u64, String)> {
    let mut places = undisturbed(scenario).places;
    // The search starts in the middle of the run, where lost data is noticed soonest.
    let middle = places.len() / 2;
    places.rotate_left(middle);
    places.into_iter().step_by(stride).find_map(|at| {
        Some((at, check_interrupted_run(scenario, Interruption { left_out, ..Interruption::at(at, survival) }).err()?))
    })
}

fn is_noticed(scenario: &'static CrashScenario, left_out: &'static [SyncKind]) {
    let found =
        [Survival::Nothing, Survival::Some(5)].into_iter().any(|how| noticed(scenario, left_out, (how, 1)).is_some());
    assert!(found, "{left_out:?} can be left out of {} without a difference", scenario.name);
}

macro_rules! mutants {
    ($($name:ident $kind:ident $scenario:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                is_noticed(&scenarios::$scenario, &[SyncKind::$kind]);
            }
        )*

        #[test]
        fn each_kind_of_skipped_sync_is_noticed() {
            assert_eq!([$(SyncKind::$kind),*], SyncKind::ALL);
        }
    };
}

mutants! {
    a_disk_that_forgets_transcripts Transcript TOOLS,
    a_disk_that_forgets_the_names_of_records RecordNames TOOLS,
    a_disk_that_forgets_the_folders_of_threads ThreadNames TOOLS,
    a_disk_that_forgets_objects Object TOOLS,
    a_disk_that_forgets_the_names_of_objects ObjectNames TOOLS,
    a_disk_that_forgets_commits Registry TOOLS,
    a_disk_that_forgets_messages Mail CANCEL,
    a_disk_that_forgets_the_names_of_messages MailNames CANCEL,
    a_disk_that_forgets_the_folders_of_the_store StateNames TOOLS,
}

#[test]
fn kill_does_not_reveal_skipped_syncs() {
    for scenario in [&scenarios::TOOLS, &scenarios::CANCEL] {
        assert_eq!(noticed(scenario, &SyncKind::ALL, (Survival::All, 3)), None);
        assert!(noticed(scenario, &SyncKind::ALL, (Survival::Nothing, 3)).is_some());
    }
}
