//! Checks doc tables whose last column names the evidence for a row: every case, test and file named there exists.

use std::fs;

use super::house::{root, sources};

/// The sources that rows may refer to.
struct Evidence {
    sources: Vec<String>,
}

impl Evidence {
    fn collect() -> Self {
        let folders = ["grammar", "compiler", "engine", "cli", "snapshots"];
        let files = folders.iter().flat_map(|folder| sources(&root().join(folder), ".rs"));
        Self { sources: files.map(|path| fs::read_to_string(path).unwrap()).collect() }
    }

    /// Returns whether a case (`topic/name`), a file of this repository, or a test with this name exists.
    fn has(&self, name: &str) -> bool {
        if name.contains('/') {
            let case = root().join("snapshots/cases").join(name).join("expected.snap");
            return case.is_file() || root().join(name).is_file();
        }
        let (function, named) = (format!("fn {name}("), format!("(\"{name}\""));
        self.sources.iter().any(|text| text.contains(&function) || text.contains(&named))
    }
}

/// Returns the table rows of a page after a heading, without header rows.
fn rows<'p>(page: &'p str, from: &str) -> Vec<&'p str> {
    let (_, after) = page.split_once(from).unwrap();
    let lines: Vec<&str> = after.lines().collect();
    let is_head = |at: usize| lines.get(at + 1).is_some_and(|next| next.starts_with("|---"));
    let of_table = |(_, line): &(usize, &&str)| line.starts_with('|') && !line.starts_with("|---");
    lines.iter().enumerate().filter(of_table).filter(|(at, _)| !is_head(*at)).map(|(_, line)| *line).collect()
}

fn missing(page: &str, from: &str, least: usize) -> Vec<String> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let rows = rows(&text, from);
    assert!(rows.len() > least, "the law must see the rows it judges: {}", rows.len());
    let evidence = Evidence::collect();
    rows.into_iter().flat_map(|row| missing_evidence(row, &evidence)).collect()
}

/// Returns what is wrong with a row: it names no evidence, or evidence that does not exist.
fn missing_evidence(row: &str, evidence: &Evidence) -> Vec<String> {
    let cell = row.trim_end_matches('|').rsplit(" | ").next().unwrap_or_default();
    let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
    if names.is_empty() {
        return vec![format!("no evidence: {row}")];
    }
    names.into_iter().filter(|name| !evidence.has(name)).map(|name| format!("{name}: {row}")).collect()
}

#[test]
fn planted_rows_without_evidence_are_found() {
    let evidence =
        Evidence { sources: vec!["#[test]\nfn plan_is_whole() {}\nTrial::test(\"thread ends\", run)".to_owned()] };
    let page = "# Promises\n\n| Promise | Shown by |\n|---|---|\n| one | `plan_is_whole` |\n| two | a test |\n\
                | three | `plan_is_hole`, `item/no-such-case` |\n| four | `thread ends`, `item/missing` |\n";
    let missing: Vec<String> =
        rows(page, "# Promises").into_iter().flat_map(|row| missing_evidence(row, &evidence)).collect();
    assert_eq!(missing.len(), 3, "{missing:?}");
    assert!(
        missing[0].contains("two") && missing[1].starts_with("plan_is_hole") && missing[2].starts_with("item/no-such")
    );
}

#[test]
fn threat_table_names_existing_evidence() {
    let missing = missing("docs/explanation/security.md", "## Threats and their tests", 25);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn language_table_names_existing_evidence() {
    let missing = missing("snapshots/promises/language.md", "# Promises of the language", 130);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn world_table_names_existing_evidence() {
    let missing = missing("snapshots/promises/providers-and-tools.md", "# Promises about providers", 40);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn compiler_table_names_existing_evidence() {
    let missing = missing("snapshots/promises/compiler.md", "# Promises of the compiler", 60);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn threads_table_names_existing_evidence() {
    let missing = missing("snapshots/promises/threads.md", "# Promises about threads", 60);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn attacks_table_names_existing_evidence() {
    let missing = missing("snapshots/promises/attacks.md", "# Promises that attacks broke", 50);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// Returns the numbers `P1` to `P15` that no row of a page has.
fn missing_numbers(page: &str) -> Vec<String> {
    let rows = rows(page, "## Findings");
    let has = |number: &String| rows.iter().any(|row| row.starts_with(&format!("| {number} |")));
    (1..=15).map(|n| format!("P{n}")).filter(|number| !has(number)).collect()
}

#[test]
fn claims_table_names_existing_evidence_for_every_finding() {
    let page = "snapshots/promises/claims.md";
    let missing = missing(page, "# Promises about the claims", 14);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    let text = fs::read_to_string(root().join(page)).unwrap();
    assert_eq!(missing_numbers(&text), Vec::<String>::new());
    let cut = text.lines().filter(|line| !line.starts_with("| P12 |")).collect::<Vec<_>>().join("\n");
    assert_eq!(missing_numbers(&cut), ["P12"]);
}

/// Returns what is wrong with the rows after a heading whose second column has codes: a code that no named case
/// contains, and a row that names neither a code nor a decision nor a test.
fn unshown_codes(page: &str, from: &str, until: &str) -> Vec<String> {
    let (_, after) = page.split_once(from).unwrap();
    let section = format!("{from}{}", after.split_once(until).map_or(after, |(section, _)| section));
    let mut found = Vec::new();
    for row in rows(&section, from) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [_, codes, evidence] = cells[..] else { panic!("three columns: {row}") };
        let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        let case = |name: &String| fs::read_to_string(root().join("snapshots/cases").join(name).join("expected.snap"));
        let cases: Vec<String> = names(evidence).iter().filter_map(|name| case(name).ok()).collect();
        if codes == "–" {
            found.extend(cases.first().map(|_| format!("a case without a code: {row}")));
        } else {
            let is_shown = |code: &String| cases.iter().any(|text| text.contains(&format!("[rye::{code}]")));
            found.extend(names(codes).into_iter().filter(|code| !is_shown(code)).map(|code| format!("{code}: {row}")));
        }
    }
    found
}

#[test]
fn each_silent_mistake_has_a_case_that_contains_its_code() {
    let text = fs::read_to_string(root().join("snapshots/promises/claims.md")).unwrap();
    let sections = [("## Mistakes without a report", "\n## ", 25), ("## Output of reports", "\n## ", 9)];
    for (from, until, count) in sections {
        let (_, after) = text.split_once(from).unwrap();
        let section = after.split_once(until).map_or(after, |(section, _)| section);
        assert_eq!(rows(&format!("{from}{section}"), from).len(), count, "{from}");
        assert_eq!(unshown_codes(&text, from, until), Vec::<String>::new());
    }
    // Planted faults.
    let planted = "## Mistakes\n\n| mistake | code | shown by |\n|---|---|---|\n| one | `item::silent` | `item/silent` |\n\
                   | two | `item::never` | `item/silent` |\n| three | – | `item/silent` |\n";
    let faults = unshown_codes(planted, "## Mistakes", "\n## ");
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(faults[0].starts_with("item::never") && faults[1].contains("three"), "{faults:?}");
}

/// Number of acceptance lines of interactive sessions.
const ACCEPTANCE_LINES: usize = 25;

/// Returns the rows of the acceptance table by number: the open part and the evidence of each.
fn acceptance_rows(page: &str) -> Vec<(usize, &str, &str)> {
    rows(page, "# Acceptance").into_iter().filter_map(acceptance_row).collect()
}

fn acceptance_row(row: &str) -> Option<(usize, &str, &str)> {
    let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
    match cells[..] {
        [number, _, open, evidence] => Some((number.parse().ok()?, open, evidence)),
        _ => None,
    }
}

/// Returns the acceptance lines that have no row or several rows, and the rows without a statement of the open part.
fn faulty_lines(page: &str) -> Vec<usize> {
    let rows = acceptance_rows(page);
    let is_faulty = |number: &usize| {
        let of_line: Vec<_> = rows.iter().filter(|row| row.0 == *number).collect();
        of_line.len() != 1 || of_line[0].1.is_empty()
    };
    (1..=ACCEPTANCE_LINES).filter(is_faulty).collect()
}

/// Returns the tests with a comment `shows: interactive 7.N` that row N does not name.
fn unnamed_tests(page: &str, source: &str) -> Vec<String> {
    let rows = acceptance_rows(page);
    let lines: Vec<&str> = source.lines().collect();
    let tag = |(at, line): (usize, &&str)| {
        let number: String =
            line.trim().strip_prefix("// shows: interactive 7.")?.chars().take_while(char::is_ascii_digit).collect();
        let function = lines[at..]
            .iter()
            .find_map(|line| line.trim().strip_prefix("fn ").or(line.trim().strip_prefix("async fn ")))?;
        Some((number.parse::<usize>().ok()?, function.split('(').next()?.to_owned()))
    };
    let is_named =
        |number: usize, name: &str| rows.iter().any(|row| row.0 == number && row.2.contains(&format!("`{name}`")));
    let tags = lines.iter().enumerate().filter_map(tag);
    tags.filter(|(number, name)| !is_named(*number, name)).map(|(number, name)| format!("7.{number}: {name}")).collect()
}

#[test]
fn firsts_table_has_every_point_and_names_existing_tests() {
    let page = "snapshots/promises/interactive-firsts.md";
    let missing = missing(page, "# What only", 8);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    let text = fs::read_to_string(root().join(page)).unwrap();
    let numbers: Vec<usize> =
        rows(&text, "# What only").into_iter().filter_map(acceptance_row).map(|row| row.0).collect();
    assert_eq!(numbers, (1..=9).collect::<Vec<_>>());
}

/// Number of stages of the prompt pipeline.
const PIPELINE_STAGES: usize = 10;

#[test]
fn pipeline_table_has_every_stage_and_names_existing_tests() {
    let page = "snapshots/promises/pipeline.md";
    let missing = missing(page, "# Stages", PIPELINE_STAGES - 1);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    let text = fs::read_to_string(root().join(page)).unwrap();
    let numbers: Vec<usize> = rows(&text, "# Stages").into_iter().filter_map(acceptance_row).map(|row| row.0).collect();
    assert_eq!(numbers, (1..=PIPELINE_STAGES).collect::<Vec<_>>());
}

#[test]
fn acceptance_table_has_every_line_and_names_existing_tests() {
    let page = "snapshots/promises/interactive.md";
    let missing = missing(page, "# Acceptance", ACCEPTANCE_LINES - 1);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    let text = fs::read_to_string(root().join(page)).unwrap();
    assert_eq!(faulty_lines(&text), Vec::<usize>::new());
    let evidence = Evidence::collect();
    let unnamed: Vec<String> = evidence.sources.iter().flat_map(|source| unnamed_tests(&text, source)).collect();
    assert!(unnamed.is_empty(), "{}", unnamed.join("\n"));
    // Planted faults.
    let cut = text.lines().filter(|line| !line.starts_with("| 12 |")).collect::<Vec<_>>().join("\n");
    assert_eq!(faulty_lines(&cut), [12]);
    let planted = "    // shows: interactive 7.3\n#[test]\nfn plants() {}\n// shows: interactive 7.22\nfn plain_mode_only_appends() {}\n";
    assert_eq!(unnamed_tests(&text, planted), ["7.3: plants"]);
}
