//! `generate N DIR`: writes a project of N directives (chains of three, hooks, knowledge, tools) for the benchmarks.
//! Equal N produces equal bytes.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(count), Some(folder), None) = (args.next(), args.next(), args.next()) else {
        return Err("usage: generate N DIR".into());
    };
    generate(count.parse()?, &PathBuf::from(folder))
}

/// Directives per area: a base that extends the standard base, and leaves that extend the base of the area.
const PER_AREA: usize = 20;

fn generate(count: usize, folder: &Path) -> Result<(), Box<dyn Error>> {
    let ai = folder.join(".ai");
    for kind in ["directives", "knowledge", "tools", "config/agent"] {
        fs::create_dir_all(ai.join(kind))?;
    }
    let areas = count.div_ceil(PER_AREA);
    let mut written = 0;
    for area in 0..areas {
        let directives = ai.join(format!("directives/area{area}"));
        let knowledge = ai.join(format!("knowledge/area{area}"));
        let tools = ai.join(format!("tools/area{area}"));
        for made in [&directives, &knowledge, &tools] {
            fs::create_dir_all(made)?;
        }
        fs::write(knowledge.join("rules.md"), rules(area))?;
        fs::write(tools.join("probe.yaml"), probe(area))?;
        fs::write(directives.join("base.md"), base(area))?;
        written += 1;
        for leaf in 0..PER_AREA - 1 {
            if written == count {
                break;
            }
            fs::write(directives.join(format!("task{leaf}.md")), task(area, leaf))?;
            fs::write(knowledge.join(format!("note{leaf}.md")), note(area, leaf))?;
            written += 1;
        }
    }
    fs::write(ai.join("config/agent/hooks.yaml"), hooks(areas))?;
    Ok(())
}

fn base(area: usize) -> String {
    format!(
        "# Area {area}\n\n```xml\n<directive name=\"base\" version=\"1.0.0\" extends=\"rye/agent/core/base_execute_only\">\n  <metadata>\n    \
         <description>What area {area} shares.</description>\n    <category>area{area}</category>\n    \
         <context><before>area{area}/rules</before></context>\n  </metadata>\n</directive>\n```\n\nContext only.\n"
    )
}

fn task(area: usize, leaf: usize) -> String {
    format!(
        "# Task {leaf} of area {area}\n\n```xml\n<directive name=\"task{leaf}\" version=\"1.0.0\" extends=\"area{area}/base\">\n  <metadata>\n    \
         <description>Look at one service of area {area} and report.</description>\n    <category>area{area}</category>\n    \
         <model tier=\"fast\"/>\n    <limits turns=\"{turns}\" spend=\"0.10\"/>\n    \
         <context><before>area{area}/note{leaf}</before></context>\n    \
         <permissions><execute><tool>rye.file-system.read</tool><tool>area{area}.*</tool></execute>\
         <acknowledge risk=\"elevated\">The probe of area {area} only reads.</acknowledge></permissions>\n  </metadata>\n  \
         <inputs><input name=\"service\" type=\"string\" required=\"true\">which service</input>\
         <input name=\"depth\" type=\"string\" enum=\"quick,full\" default=\"quick\">how thorough</input></inputs>\n  \
         <outputs><output name=\"healthy\" type=\"boolean\" required=\"true\">whether it answers</output></outputs>\n\
         </directive>\n```\n\nProbe `{{input:service}}` ({{input:depth}}), read its notes and say whether it is healthy.\n{filler}",
        turns = 5 + leaf % 7,
        filler = "Note what you saw, in the order in which you saw it, and nothing else.\n".repeat(6)
    )
}

fn note(area: usize, leaf: usize) -> String {
    format!(
        "---\nname: note{leaf}\ndescription: Background for task {leaf}.\ncategory: area{area}\n---\n\n{}",
        format!("The service of task {leaf} belongs to area {area} and restarts on Sundays.\n").repeat(5)
    )
}

fn rules(area: usize) -> String {
    format!(
        "---\nname: rules\ndescription: Rules of area {area}.\ncategory: area{area}\n---\n\nAsk before you restart anything in area {area}.\n"
    )
}

fn probe(area: usize) -> String {
    format!(
        "version: 1.0.0\ncategory: area{area}\ndescription: Ask a service of area {area} how it is.\nkind: command\n\
         command: [\"echo\", \"{{service}}\"]\nparameters:\n  type: object\n  additionalProperties: false\n  required: [service]\n  \
         properties:\n    service: {{ type: string, description: Name of the service }}\n"
    )
}

fn hooks(areas: usize) -> String {
    let mut text = String::from("hooks:\n");
    for area in (0..areas).step_by(5) {
        let condition = format!("{{ path: directive, op: contains, value: \"area{area}/\" }}");
        let action = format!("{{ primary: fetch, item_type: knowledge, item_id: area{area}/rules }}");
        // Writing to a String cannot fail.
        write!(
            text,
            "  - id: rules_{area}\n    event: thread_started\n    position: after\n    condition: {condition}\n    action: {action}\n"
        )
        .ok();
    }
    text
}
