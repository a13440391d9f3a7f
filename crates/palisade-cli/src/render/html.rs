//! One page for a browser: findings with excerpts and diffs, filters, and nothing from elsewhere.
//!
//! Every text that comes from a manifest is hostile input. It is written only through [`Html::text`], which escapes it, and the
//! policy of the page allows one style sheet and one script, by their hashes, and no request at all. Without the script the page
//! shows everything.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use palisade_base::sha256;
use palisade_yaml::LineIndex;

use super::{Totals, proposal::diff};
use crate::{
    diagnostic::{Diagnostic, Excerpt, Label, Severity},
    html::Html,
    identity::objects,
    judge::FileReport,
};

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

/// Lines around a place.
const CONTEXT: usize = 3;

/// A line of an excerpt is cut behind so many characters.
const WIDEST: usize = 400;

/// A page under way.
#[derive(Debug, Default)]
pub(super) struct Report {
    findings: String,
    objects: Html,
    rules: BTreeMap<String, (usize, usize)>,
}

impl Report {
    pub(super) fn push(&mut self, report: &FileReport, fragment: &str) {
        self.findings.push_str(fragment);
        for finding in &report.diagnostics {
            let (errors, warnings) = self.rules.entry(finding.code.as_str().to_owned()).or_default();
            match finding.severity {
                Severity::Error => *errors += 1,
                Severity::Warning => *warnings += 1,
            }
        }
        for verdict in &report.verdicts {
            self.objects.markup("<tr><td>").markup(if verdict.allowed { ALLOWED } else { DENIED });
            self.objects.element("</td><td>", &verdict.title(), "</td>");
            self.objects.element("<td>", &report.file, "</td></tr>");
        }
    }

    pub(super) fn finish(self, totals: &Totals, judged_at: &str, out: &mut dyn Write) -> io::Result<()> {
        let mut html = Html::default();
        html.markup("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
        let hash =
            |text: &str| format!("'sha256-{}'", BASE64_STANDARD.encode(sha256::digest(text.as_bytes())));
        let policy_of_page = format!(
            "default-src 'none'; style-src {}; script-src {}; base-uri 'none'; form-action 'none'",
            hash(STYLE),
            hash(SCRIPT)
        );
        html.element("<meta http-equiv=\"Content-Security-Policy\" content=\"", &policy_of_page, "\">");
        html.markup("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
        html.markup("<title>Palisade: findings</title><style>").markup(STYLE).markup("</style></head><body>");
        html.markup("<a class=\"skip\" href=\"#findings\">Skip to the findings</a><header><h1>Palisade</h1>");
        html.element("<span>checked at ", judged_at, "</span></header><main>");
        html.markup("<ul class=\"tiles\">");
        for (figure, what, is_bad) in [
            (totals.objects, "objects checked", false),
            (totals.denied, "objects denied", true),
            (totals.error_findings, "errors", true),
            (totals.warning_findings, "warnings", false),
            (totals.errors, "inputs not checked", true),
            (totals.suppressed + totals.known, "findings accepted", false),
        ] {
            html.markup(if is_bad && figure > 0 { "<li class=\"bad\"><b>" } else { "<li><b>" });
            html.number(figure).markup("</b>").markup(what).markup("</li>");
        }
        html.markup("</ul>").markup(FILTERS);
        if !self.rules.is_empty() {
            html.markup("<section aria-labelledby=\"rules\"><h2 id=\"rules\">Rules</h2><table><thead><tr><th scope=\"col\">Rule</th>");
            html.markup("<th scope=\"col\" class=\"figure\">Errors</th><th scope=\"col\" class=\"figure\">Warnings</th></tr></thead><tbody>");
            for (code, (errors, warnings)) in &self.rules {
                html.element("<tr><td><code>", code, "</code></td><td class=\"figure\">").number(*errors);
                html.markup("</td><td class=\"figure\">").number(*warnings).markup("</td></tr>");
            }
            html.markup("</tbody></table></section>");
        }
        html.markup("<h2 id=\"findings\">Findings</h2>");
        if self.findings.is_empty() {
            html.markup("<p>No findings.</p>");
        }
        out.write_all(html.finish().as_bytes())?;
        out.write_all(self.findings.as_bytes())?;
        let mut end = Html::default();
        if !self.objects.is_empty() {
            end.markup(
                "<details><summary>All objects</summary><table><thead><tr><th scope=\"col\">Result</th>",
            );
            end.markup("<th scope=\"col\">Object</th><th scope=\"col\">File</th></tr></thead><tbody>");
            end.part(&self.objects).markup("</tbody></table></details>");
        }
        end.markup("</main><script>").markup(SCRIPT).markup("</script></body></html>\n");
        out.write_all(end.finish().as_bytes())
    }
}

const ALLOWED: &str = "<span class=\"badge good\">allowed</span>";
const DENIED: &str = "<span class=\"badge bad\">denied</span>";

const FILTERS: &str = "<div id=\"filters\" class=\"filters\" role=\"search\" aria-label=\"Filter the findings\" hidden>\
<label>Words <input id=\"words\" type=\"search\" autocomplete=\"off\"></label>\
<label>Severity <select id=\"severity\"><option value=\"\">all</option><option value=\"error\">error</option><option value=\"warning\">warning</option></select></label>\
<label>Rule <select id=\"rule\"><option value=\"\">all</option></select></label>\
<label>Folder <select id=\"folder\"><option value=\"\">all</option></select></label>\
<label class=\"check\"><input id=\"fixable\" type=\"checkbox\"> only with a fix</label>\
<output id=\"shown\" aria-live=\"polite\"></output></div>";

/// The findings of a file.
pub(super) fn fragment(report: &FileReport, source: Option<&str>) -> String {
    let mut html = Html::default();
    if report.diagnostics.is_empty() {
        return html.finish();
    }
    let lines = source.map(|source| (source, LineIndex::new(source)));
    html.element("<section class=\"file\" data-file=\"", &report.file, "\">");
    html.element("<h3>", &report.file, "</h3>");
    if !report.verdicts.is_empty() {
        html.markup("<ul class=\"objects\">");
        for verdict in &report.verdicts {
            html.markup("<li>").markup(if verdict.allowed { ALLOWED } else { DENIED });
            html.element(" ", &verdict.title(), "</li>");
        }
        html.markup("</ul>");
    }
    let objects = objects(report);
    for finding in &report.diagnostics {
        let object = finding.object.as_ref().and_then(|id| objects.get(id)).map(|verdict| verdict.title());
        draw(finding, object.as_deref(), source, lines.as_ref(), &mut html);
    }
    html.markup("</section>\n");
    html.finish()
}

fn draw(
    finding: &Diagnostic,
    object: Option<&str>,
    source: Option<&str>,
    lines: Option<&(&str, LineIndex<'_>)>,
    html: &mut Html,
) {
    let (article, badge) = match finding.severity {
        Severity::Error => (
            "<article class=\"finding error\" data-severity=\"error\" data-code=\"",
            "<h4><span class=\"badge bad\">error</span> <code>",
        ),
        Severity::Warning => (
            "<article class=\"finding\" data-severity=\"warning\" data-code=\"",
            "<h4><span class=\"badge warn\">warning</span> <code>",
        ),
    };
    let fix = finding.effect();
    let kind = fix.map_or("none", |effect| if effect.is_safe() { "safe" } else { "unsafe" });
    html.element(article, finding.code.as_str(), "\" data-fix=\"").text(kind).markup("\">");
    html.element(badge, finding.code.as_str(), "</code> ").text(&finding.summary).markup("</h4>");
    let mut place = finding.file.to_string();
    if let Some(label) = &finding.at {
        place = format!("{place}:{}:{}", label.line, label.column);
    }
    let parts = [
        Some(place),
        object.map(str::to_owned),
        finding.container.as_ref().map(|name| format!("container {name}")),
        finding.path.clone(),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    html.element("<p class=\"place\">", &parts.join(" · "), "</p>");
    if let Some(label) = &finding.at {
        excerpt(label, lines, html);
    }
    html.markup("<div class=\"notes\">");
    if let Some(text) = finding.at.as_ref().map(|label| &label.text).filter(|text| !text.is_empty()) {
        html.element("<p>", text, "</p>");
    }
    for reason in &finding.because {
        html.element("<p><b>Because:</b> ", reason, "</p>");
    }
    if let Some(help) = &finding.help {
        html.element("<p><b>Help:</b> ", help, "</p>");
    }
    if let Some(patch) = &finding.values {
        for (key, value) in &patch.set {
            html.element("<p><b>Value:</b> <code>", &format!("{key}: {value}"), "</code> in ")
                .text(&patch.file)
                .markup("</p>");
        }
    }
    html.markup("</div>");
    if let (Some(effect), Some(diff)) = (fix, source.and_then(|source| diff(finding, source))) {
        html.markup("<details><summary>Fix, ").text(effect.name()).markup(": ").text(effect.reason());
        html.markup("</summary><pre class=\"diff\" tabindex=\"0\" aria-label=\"diff\">");
        for line in diff.lines() {
            let open = match line.as_bytes().first() {
                Some(b'+') => "<span class=\"line add\">",
                Some(b'-') => "<span class=\"line remove\">",
                _ => "<span class=\"line\">",
            };
            html.element(open, line, "</span>");
        }
        html.markup("</pre></details>");
    }
    html.markup("</article>");
}

fn excerpt(label: &Label, lines: Option<&(&str, LineIndex<'_>)>, html: &mut Html) {
    html.markup("<pre class=\"source\" tabindex=\"0\" aria-label=\"source\">");
    let around = |from: usize, to: usize, html: &mut Html| {
        let Some((source, index)) = lines else { return };
        for number in from..to {
            let Some(span) = index.line_span(number).filter(|span| span.start < source.len()) else { break };
            html.markup("<span class=\"line\"><i>").number(number).markup("</i>");
            let line: String =
                span.text(source).trim_end_matches(['\r', '\n']).chars().take(WIDEST).collect();
            html.text(&line).markup("</span>");
        }
    };
    around(label.line.saturating_sub(CONTEXT).max(1), label.line, html);
    let Excerpt { text, start, end } = &label.excerpt;
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    html.markup("<span class=\"line\"><i>").number(label.line).markup("</i>").text(part(0, *start));
    html.element("<mark>", part(*start, *end), "</mark>").text(part(*end, text.len())).markup("</span>");
    around(label.line + 1, label.line + 1 + CONTEXT, html);
    html.markup("</pre>");
}
