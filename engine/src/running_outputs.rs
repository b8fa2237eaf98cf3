//! The outputs of the programs that run, for a terminal that shows their last lines.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::secrets::mask_secrets;
use crate::tool::process::SharedOutput;

/// Maximum bytes of an output that are read for its last lines.
const MAX_TAIL_BYTES: usize = 16 * 1024;
/// Number of bytes before the last [`MAX_TAIL_BYTES`] that are also read, because a secret can begin before the shown
/// bytes. These bytes are masked together with the shown bytes, and then dropped. A longer encoded secret is not found.
const MASKED_LEAD_BYTES: usize = 16 * 1024;

/// The outputs of the calls and commands that an engine runs now. Clones share the outputs.
#[derive(Debug, Clone, Default)]
pub struct RunningOutputs(Arc<Mutex<OutputsByStart>>);

#[derive(Debug, Default)]
struct OutputsByStart {
    started: u64,
    outputs: BTreeMap<u64, SharedOutput>,
}

/// A guard for the output of one program. Until the guard is dropped, the program counts as running.
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
    /// lines are left out. If a program overwrites a line, as for a progress bar, returns the last version of the line.
    pub fn last_lines(&self, count: usize) -> Vec<String> {
        let outputs: Vec<SharedOutput> = self.lock().outputs.values().cloned().collect();
        let tails = outputs.iter().rev().map(masked_tail);
        let text = tails.into_iter().find(|text| !text.trim().is_empty()).unwrap_or_default();
        let written = |line: &str| line.rsplit('\r').find(|part| !part.trim().is_empty()).map(str::to_owned);
        let lines: Vec<String> = text.lines().filter_map(written).collect();
        lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().to_vec()
    }

    fn lock(&self) -> MutexGuard<'_, OutputsByStart> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the end of an output, without secrets.
fn masked_tail(output: &SharedOutput) -> String {
    let text = output.tail(MASKED_LEAD_BYTES + MAX_TAIL_BYTES);
    let masked = mask_secrets(&text);
    // The first bytes can hold the end of a secret that begins before the text. Masking does not find such a part of a
    // secret, so these bytes are not shown.
    let lead = text.len().saturating_sub(MAX_TAIL_BYTES).min(MASKED_LEAD_BYTES);
    let start = (lead..=masked.len()).find(|at| masked.is_char_boundary(*at)).unwrap_or(masked.len());
    masked.get(start..).unwrap_or_default().to_owned()
}

impl Drop for RunningOutput {
    fn drop(&mut self) {
        self.running.lock().outputs.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::add_secrets;

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

    #[test]
    fn secret_that_begins_before_the_shown_bytes_is_masked() {
        let secret = "planted-secret-value";
        add_secrets([("BORDER_API_KEY".to_owned(), secret.to_owned())].into_iter());
        for shown_bytes in [1, 5, secret.len() - 1] {
            for lead in [0, 2 * MASKED_LEAD_BYTES] {
                let (running, output) = (RunningOutputs::default(), SharedOutput::default());
                let _running = running.add(output.clone());
                output.push("x".repeat(lead).as_bytes());
                output.push(secret.as_bytes());
                output.push("y".repeat(MAX_TAIL_BYTES - shown_bytes).as_bytes());
                let lines = running.last_lines(1);
                let rest = secret.get(secret.len() - shown_bytes..).unwrap_or_default();
                assert!(lines.iter().all(|line| !line.contains(&format!("{rest}y"))), "{shown_bytes} {lead}");
                assert!(lines.iter().all(|line| line.ends_with("yyy")), "{shown_bytes} {lead}");
            }
        }
        // The start of this secret is not read.
        let (running, output) = (RunningOutputs::default(), SharedOutput::default());
        let _running = running.add(output.clone());
        output.push(secret.as_bytes());
        output.push("y".repeat(MASKED_LEAD_BYTES + MAX_TAIL_BYTES - 5).as_bytes());
        assert!(running.last_lines(1).iter().all(|line| !line.contains("value")));
    }
}
