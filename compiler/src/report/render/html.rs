//! Renders a plan as one HTML page: the prompt colored by origin, the graph, the capabilities and the costs. The page
//! loads nothing and runs no script.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::json::{
    CacheStepReport, FieldReport, ForecastReport, LayerReport, LimitReport, PlanReport, ReasonReport, ToolReport,
    VerdictReport, dollars, render as report,
};
use super::svg;
use super::table::group_thousands;
use crate::compile::Compilation;
use crate::diagnostics::is_unprintable;
use crate::drawing::Drawing;
use crate::plan::source::SourceReport;
use crate::report::summary::PlanSummary;

/// Renders a plan with its summary as an HTML page.
pub fn render(compilation: &Compilation, summary: &PlanSummary) -> String {
    let plan = report(compilation, Vec::new()).with_summary(summary.clone());
    let colours = SourceColors::of(&plan);
    let mut out = String::new();
    let title = escape_html(&plan.directive);
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<title>{title} · plan</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header><h1>{title}</h1><p>{}</p><p class=\"dim\">plan {}</p></header>\n",
        escape_html(plan.description.trim()),
        escape_html(plan.plan_id.get(..12).unwrap_or(&plan.plan_id))
    )
    .ok();
    write_opening(&mut out, summary);
    write_costs(&mut out, &plan);
    write_legend(&mut out, &colours);
    write_message(&mut out, "System prompt", &plan.system.text, &plan.system.layers, &colours);
    let first = &plan.first_message;
    let layers: Vec<LayerReport> = first.before.iter().chain(&first.body).chain(&first.after).cloned().collect();
    write_message(&mut out, "First message", &first.text, &layers, &colours);
    write_message(&mut out, "Continuation", &plan.continued.text, &plan.continued.layers, &colours);
    write_absent(&mut out, &plan);
    write_tools(&mut out, &plan);
    write_capabilities(&mut out, &plan);
    write_limits(&mut out, &plan);
    write_fields(&mut out, "Inputs", &plan.inputs);
    write_fields(&mut out, "Outputs", &plan.outputs);
    write_hooks(&mut out, &plan);
    write_section(&mut out, "Execution graph", |out| match svg::render(&Drawing::of_plan(&compilation.plan.graph)) {
        Ok(drawn) => {
            write!(out, "<div class=\"graph\">{drawn}</div>").ok();
        }
        Err(error) => {
            write!(out, "<p>{}</p>", escape_html(&error.to_string())).ok();
        }
    });
    out.push_str("</body>\n</html>\n");
    out
}

const STYLE: &str = ":root{--ink:#1d2230;--dim:#626b80;--paper:#fbfbfd;--card:#fff;--line:#dde1ea}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ee;--dim:#98a1b5;--paper:#101318;--card:#171b22;--line:#2b313d}}\
*{box-sizing:border-box}body{margin:0 auto;max-width:1180px;padding:24px;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:0}dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}details>dl{margin-top:8px;font-size:13.5px}h1{margin:0;font-size:24px}h2{font-size:17px;margin:0 0 10px}header p{margin:4px 0}.dim{color:var(--dim);font-size:13px}\
section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:16px;margin:16px 0;overflow-x:auto}\
table{border-collapse:collapse;width:100%;font-size:13.5px}th,td{text-align:left;padding:4px 10px 4px 0;border-bottom:1px solid var(--line);vertical-align:top}th{color:var(--dim);font-weight:500}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\
code,pre{font:12.5px/1.55 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}\
.layer{border-left:5px solid hsl(var(--h) 65% 50%);background:hsl(var(--h) 65% 50%/.09);margin:0 0 8px;border-radius:0 6px 6px 0;overflow-wrap:anywhere}\
.layer summary{cursor:pointer;padding:5px 10px;font-size:13px;color:var(--dim)}.layer summary b{color:var(--ink);font-weight:600}\
.layer pre{margin:0;padding:2px 10px 10px;white-space:pre-wrap}.layer ol{margin:0 0 8px;padding:0 10px 0 30px;font-size:12.5px;color:var(--dim)}\
.legend span{display:inline-block;margin:0 12px 4px 0;padding-left:10px;border-left:12px solid hsl(var(--h) 65% 50%);font-size:13px}\
.fires{color:#1a8f4c}.never,.removed{color:var(--dim)}.depends{color:#b9770e}.graph svg{max-width:100%;height:auto}\
@media(max-width:640px){body{padding:12px}section{padding:12px}table{font-size:11.5px}th,td{padding-right:6px}.graph svg{max-width:none}\
.rows,.rows tbody,.rows tr,.rows td{display:block}.rows{font-size:13px}.rows th,.rows td:empty{display:none}.rows tr{border-bottom:1px solid var(--line);padding:6px 0}.rows td{border:0;padding:1px 0;overflow-wrap:anywhere}.rows td+td::before{content:attr(data-as) \" \";color:var(--dim);font-size:12px}}";

/// The hue, in degrees, for each source of a layer of the prompt: the path of a file, or a description for a layer
/// without a file.
struct SourceColors(BTreeMap<String, u32>);

impl SourceColors {
    fn of(plan: &PlanReport) -> Self {
        let first = &plan.first_message;
        let message = first.before.iter().chain(&first.body).chain(&first.after);
        let mut hues = BTreeMap::new();
        for layer in plan.system.layers.iter().chain(message).chain(&plan.continued.layers) {
            let next = u32::try_from(hues.len()).unwrap_or(0);
            // The golden angle keeps neighboring hues apart for any number of files. Hues near red, the color of
            // errors, are left out.
            hues.entry(format_origin(layer)).or_insert(30 + next.wrapping_mul(137) % 300);
        }
        Self(hues)
    }

    fn hue(&self, layer: &LayerReport) -> u32 {
        self.0.get(&format_origin(layer)).copied().unwrap_or(0)
    }
}

/// Returns the file that a layer comes from. If the layer comes from no file, returns its field `via`.
fn format_origin(layer: &LayerReport) -> String {
    layer.source.as_ref().map_or_else(|| layer.via.clone(), |source| source.file.clone())
}

fn write_section(out: &mut String, title: &str, inside: impl FnOnce(&mut String)) {
    write!(out, "<section><h2>{}</h2>", escape_html(title)).ok();
    inside(out);
    out.push_str("</section>\n");
}

/// Renders the summary of the plan. An element below the summary can be opened to list the names of everything that the
/// plan may access.
fn write_opening(out: &mut String, summary: &PlanSummary) {
    write_section(out, "Summary", |out| {
        out.push_str("<dl>");
        for (label, text) in summary.lines() {
            write!(out, "<dt>{label}</dt><dd>{}</dd>", escape_html(&text)).ok();
        }
        out.push_str("</dl>");
        let lists: Vec<_> = summary.access.lists().into_iter().filter(|(.., names)| !names.is_empty()).collect();
        if lists.is_empty() {
            return;
        }
        out.push_str("<details><summary>all names</summary><dl>");
        for (verb, _, names) in lists {
            write!(out, "<dt>{verb}</dt><dd>{}</dd>", escape_html(&names.join(", "))).ok();
        }
        out.push_str("</dl></details>");
    });
}

fn write_costs(out: &mut String, plan: &PlanReport) {
    let tokens = &plan.tokens;
    write_section(out, "Cost", |out| {
        out.push_str("<table><tr><th></th><th class=\"n\">turns</th><th class=\"n\">in</th><th class=\"n\">cached</th><th class=\"n\">out</th><th class=\"n\">cost</th><th>ends</th></tr>");
        for (name, estimate) in [("first request, at most", &plan.cost.first), ("typical run", &plan.cost.typical)] {
            let cost = estimate.cost.as_ref().map_or_else(|| "–".to_owned(), dollars);
            write!(
                out,
                "<tr><td>{name}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
                group_thousands(estimate.turns),
                group_thousands(estimate.input),
                group_thousands(estimate.cached),
                group_thousands(estimate.output),
                escape_html(&cost),
                escape_html(&estimate.stopped)
            )
            .ok();
        }
        worst_case(out, &plan.cost);
        let exact = tokens
            .exact
            .as_ref()
            .map(|exact| format!(" ({exact} is exact for this model; this build of rye lacks it)"));
        let exact = exact.unwrap_or_default();
        write!(
            out,
            "</table><p class=\"dim\">{}/{}, tokens counted as {}{}. The first request, as estimated: system {} + message {} + tools {} = {}.</p>",
            escape_html(&plan.model.provider),
            escape_html(&plan.model.id),
            escape_html(&tokens.estimator),
            escape_html(&exact),
            group_thousands(tokens.system),
            group_thousands(tokens.first_message),
            group_thousands(tokens.palette),
            group_thousands(tokens.input)
        )
        .ok();
        cache_map(out, &plan.cost.cache_map);
    });
}

/// Renders the cache map: a row for each request that can follow an earlier one. A row contains the number of tokens at
/// the start of the request that the provider's cache already holds, and the cost of the opening with and without the
/// cache.
fn cache_map(out: &mut String, steps: &[CacheStepReport]) {
    out.push_str("<table><tr><th>next request</th><th class=\"n\">from the cache</th><th class=\"n\">of</th><th class=\"n\">cost</th><th class=\"n\">uncached</th><th>up to</th></tr>");
    let amount = |value: Option<&serde_json::Value>| value.map_or_else(|| "–".to_owned(), dollars);
    for step in steps {
        write!(
            out,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            escape_html(&step.request),
            group_thousands(step.shared),
            group_thousands(step.of),
            escape_html(&amount(step.cost.as_ref())),
            escape_html(&amount(step.uncached.as_ref())),
            escape_html(step.ends_at.as_deref().unwrap_or_default())
        )
        .ok();
    }
    out.push_str("</table>");
}

/// Renders the last row of the cost table: the bounds on the turns and the cost of every run.
fn worst_case(out: &mut String, cost: &ForecastReport) {
    let (worst, turns) = (&cost.worst, &cost.turns);
    let most = turns.at_most.map_or_else(|| "–".to_owned(), group_thousands);
    let amount = worst.cost.as_ref().map_or_else(|| "–".to_owned(), dollars);
    write!(
        out,
        "<tr><td>worst case</td><td class=\"n\">{} to {most}</td><td class=\"n\">–</td><td class=\"n\">–</td><td class=\"n\">–</td><td class=\"n\">{}</td><td>set by {}</td></tr>",
        group_thousands(turns.at_least),
        escape_html(&amount),
        escape_html(&worst.set_by)
    )
    .ok();
}

fn write_legend(out: &mut String, colours: &SourceColors) {
    out.push_str("<p class=\"legend\">");
    for (file, hue) in &colours.0 {
        write!(out, "<span style=\"--h:{hue}\">{}</span>", escape_html(file)).ok();
    }
    out.push_str("</p>\n");
}

fn write_message(out: &mut String, title: &str, whole: &str, layers: &[LayerReport], colours: &SourceColors) {
    if layers.is_empty() {
        return;
    }
    write_section(out, title, |out| {
        for layer in layers {
            let sent = whole.get(layer.offset..layer.offset.saturating_add(layer.bytes)).unwrap_or_default();
            let cost = layer
                .cost_per_turn
                .as_ref()
                .map(|c| format!(" · {} a turn, {} cached", dollars(&c.full), dollars(&c.cached)));
            write!(
                out,
                "<details open class=\"layer\" style=\"--h:{}\"><summary><b>{}</b> · {} tokens · {} bytes{} · {}{}</summary>{}<pre>{}</pre></details>",
                colours.hue(layer),
                escape_html(&layer.id),
                group_thousands(layer.tokens),
                layer.bytes,
                cost.unwrap_or_default(),
                escape_html(&layer.via),
                format_location(layer.source.as_ref()),
                format_steps(&layer.reasons),
                escape_html(sent)
            )
            .ok();
        }
    });
}

fn format_steps(reasons: &[ReasonReport]) -> String {
    if reasons.is_empty() {
        return String::new();
    }
    let items: Vec<String> = reasons
        .iter()
        .map(|r| format!("<li>{}{}</li>", escape_html(&r.text), format_location(r.source.as_ref())))
        .collect();
    format!("<ol>{}</ol>", items.join(""))
}

fn write_absent(out: &mut String, plan: &PlanReport) {
    if plan.absent.is_empty() {
        return;
    }
    write_section(out, "Not in the plan", |out| {
        let rows = plan.absent.iter().map(|absent| {
            [
                escape_html(&absent.why.replace('_', " ")),
                format_code(&absent.id),
                escape_html(&absent.text),
                format_location(absent.source.as_ref()),
            ]
        });
        write_table(out, &["why", "what", "because", "where"], rows);
    });
}

fn write_tools(out: &mut String, plan: &PlanReport) {
    write_section(out, "Tools", |out| {
        let rows = plan.palette.iter().map(|tool| {
            [
                format_code(&tool.name),
                group_thousands(tool.tokens),
                format_definition(tool),
                format!("{}{}", escape_html(&tool.via), format_location(tool.source.as_ref())),
            ]
        });
        write_table(out, &["name", "tokens", "description", "because"], rows);
    });
}

/// Renders the description and the JSON Schema of a tool as a request contains them.
fn format_definition(tool: &ToolReport) -> String {
    let (description, schema) = match &tool.sent {
        Some(sent) => (&sent.description, sent.schema.as_ref()),
        None => (&tool.description, Some(&*tool.schema)),
    };
    let schema = schema.map(|schema| format!("{schema:#}")).unwrap_or_default();
    if schema.is_empty() {
        return escape_html(description);
    }
    let schema = escape_html(&schema);
    format!("{}<details><summary>schema as sent</summary><pre>{schema}</pre></details>", escape_html(description))
}

fn write_capabilities(out: &mut String, plan: &PlanReport) {
    write_section(out, "Permissions", |out| {
        let rows = plan.capabilities.iter().map(|grant| {
            let needs = [("net", &grant.net), ("write", &grant.write)];
            let needs = needs.into_iter().filter(|(_, list)| !list.is_empty());
            let needs: Vec<String> = needs.map(|(name, list)| format!("{name} {}", list.join(", "))).collect();
            [
                format_code(&grant.pattern),
                escape_html(&needs.join("; ")),
                escape_html(&grant.via),
                format_location(grant.source.as_ref()),
            ]
        });
        write_table(out, &["grant", "opens", "because", "where"], rows);
        for required in &plan.approvals_required {
            write!(out, "<p>{}</p>", escape_html(&required.describe_effect(plan.headless_policy))).ok();
        }
    });
}

fn write_limits(out: &mut String, plan: &PlanReport) {
    write_limit_section(out, "Limits", &plan.limits);
    if !plan.session_limits.is_empty() {
        write_limit_section(out, "Session limits", &plan.session_limits);
    }
}

fn write_limit_section(out: &mut String, title: &str, limits: &BTreeMap<String, LimitReport>) {
    write_section(out, title, |out| {
        let rows = limits.iter().map(|(name, limit)| {
            [
                escape_html(name),
                escape_html(&limit.value.to_string()),
                escape_html(&limit.via),
                format_location(limit.source.as_ref()),
            ]
        });
        write_table(out, &["limit", "value", "because", "where"], rows);
    });
}

fn write_fields(out: &mut String, title: &str, fields: &[FieldReport]) {
    if fields.is_empty() {
        return;
    }
    write_section(out, title, |out| {
        let rows = fields.iter().map(|field| {
            let state = match (&field.value, &field.default) {
                (Some(value), _) => format!("= {value}"),
                (None, Some(default)) => format!("default {default}"),
                (None, None) if field.required => "required".to_owned(),
                (None, None) => "optional".to_owned(),
            };
            let because = format!("{}{}", escape_html(&field.via), format_location(field.source.as_ref()));
            [format_code(&field.name), escape_html(&field.r#type), escape_html(&state), because]
        });
        write_table(out, &["name", "type", "value", "because"], rows);
    });
}

fn write_hooks(out: &mut String, plan: &PlanReport) {
    if plan.hooks.is_empty() {
        return;
    }
    write_section(out, "Hooks", |out| {
        let rows = plan.hooks.iter().map(|hook| {
            let word = match hook.verdict {
                VerdictReport::Fires => "fires",
                VerdictReport::Never => "never",
                VerdictReport::Depends => "depends",
                VerdictReport::Removed => "removed",
            };
            let verdict = format!("<span class=\"{word}\">{word}</span>");
            [
                verdict,
                format_code(&hook.event),
                format_code(&hook.id),
                format!("{}{}", escape_html(&hook.because), format_location(hook.source.as_ref())),
            ]
        });
        write_table(out, &["verdict", "event", "hook", "because"], rows);
    });
}

/// Writes a table. Cells are already HTML. On a narrow screen the cells of a row are stacked, each with its column's
/// heading before it.
fn write_table(out: &mut String, head: &[&str; 4], rows: impl Iterator<Item = [String; 4]>) {
    let words: String = head.iter().fold(String::new(), |all, cell| all + "<th>" + &escape_html(cell) + "</th>");
    write!(out, "<table class=\"rows\"><tr>{words}</tr>").ok();
    for row in rows {
        out.push_str("<tr>");
        for (word, cell) in head.iter().zip(row) {
            write!(out, "<td data-as=\"{}\">{cell}</td>", escape_html(word)).ok();
        }
        out.push_str("</tr>");
    }
    out.push_str("</table>");
}

fn format_code(value: &str) -> String {
    format!("<code>{}</code>", escape_html(value))
}

fn format_location(source: Option<&SourceReport>) -> String {
    source
        .map(|s| format!(" <span class=\"dim\">{}:{}:{}</span>", escape_html(&s.file), s.line, s.column))
        .unwrap_or_default()
}

/// Escapes text for HTML and replaces control characters by U+FFFD.
pub fn escape_html(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if is_unprintable(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
