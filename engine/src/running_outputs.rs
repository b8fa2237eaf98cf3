//! The outputs of the programs that run, for a terminal that shows their last lines.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::secrets::mask_secrets;
use crate::tool::process::SharedOutput;

/// Maximum bytes of an output that are read for its last lines.
const MAX_TAIL_BYTES: usize = 16 * 1024;

/// The outputs of the calls and commands that an engine runs now. Clones share the outputs.
#[derive(Debug, Clone, Default)]
pub struct RunningOutputs(Arc<Mutex<OutputsByStart>>);

#[derive(Debug, Default)]
struct OutputsByStart {
    started: u64,
    outputs: BTreeMap<u64, SharedOutput>,
}

/// A guard: while it is alive, the output of its program counts as running.
#[derive(Debug)]
pub(crate) struct RunningOutput {
    running: RunningOutputs,
    number: u64,
}

impl RunningOutputs {
    /// Adds the output of a program that starts now.
    pub(crate) fn add(&self, output: SharedOutput) -> RunningOutput {
        let mut running = self.lock();
        running.started += 1;
        let number = running.started;
        running.outputs.insert(number, output);
        RunningOutput { running: self.clone(), number }
    }

    /// Returns the last lines, at most `count`, of the program that was started last among those with an output. Blank
    /// lines are left out. Of a line that was written again and again, such as a progress bar, returns the last version.
    pub fn last_lines(&self, count: usize) -> Vec<String> {
        let outputs: Vec<SharedOutput> = self.lock().outputs.values().cloned().collect();
        let tails = outputs.iter().rev().map(|output| output.tail(MAX_TAIL_BYTES));
        let text = tails.into_iter().find(|text| !text.trim().is_empty()).unwrap_or_default();
        let text = mask_secrets(&text);
        let written = |line: &str| line.rsplit('\r').find(|part| !part.trim().is_empty()).map(str::to_owned);
        let lines: Vec<String> = text.lines().filter_map(written).collect();
        lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().to_vec()
    }

    fn lock(&self) -> MutexGuard<'_, OutputsByStart> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RunningOutput {
    fn drop(&mut self) {
        self.running.lock().outputs.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lines_are_those_of_the_newest_program_with_output() {
        let running = RunningOutputs::default();
        let (first, second) = (SharedOutput::default(), SharedOutput::default());
        let _first = running.add(first.clone());
        let newest = running.add(second.clone());
        first.push(b"one\ntwo\n\nthree\n10 %\r20 %");
        assert_eq!(running.last_lines(2), ["three", "20 %"]);
        second.push("x".repeat(MAX_TAIL_BYTES).as_bytes());
        second.push(b"\nend\n");
        assert_eq!(running.last_lines(1), ["end"]);
        drop(newest);
        assert_eq!(running.last_lines(9), ["one", "two", "three", "20 %"]);
    }
}
