//! How `palisade rollout` shows what it found: a table and the causes, a script, or JSON.

use std::fmt::Write as _;

use palisade_controllers::{
    cluster::{Blocker, Undecided},
    readiness::report::NamespaceReport,
};
use palisade_policy::enforcement::{
    classify::{Class, Reason},
    level::LevelSource,
};
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use super::{Answer, Live};

/// How many names a line lists.
const MOST_NAMED: usize = 10;

/// How an administrator opts in.
const OPT_IN: &str = r#"kubectl patch psaenforcementconfig cluster --type=merge -p '{"spec":{"enforcementMode":"Restricted"}}'"#;

fn level_text(namespace: &NamespaceReport) -> String {
    namespace.level.map_or_else(|| format!("{} (own label)", namespace.own_level), |level| level.to_string())
}

fn reason_text(namespace: &NamespaceReport) -> &'static str {
    match (namespace.class, namespace.undecided) {
        (Some(class), _) => class.reason().map_or("run-level zero namespace", Reason::as_str),
        (None, Some(_)) => "undecided",
        (None, None) => "-",
    }
}

fn since_text(namespace: &NamespaceReport) -> String {
    match (&namespace.since, &namespace.resolved) {
        (Some(since), _) => since.clone(),
        (None, Some(resolved)) => format!("fixed {resolved}"),
        (None, None) => "-".to_owned(),
    }
}

/// The state that the cluster reports.
fn live_text(live: &Live, text: &mut String) {
    let config = &live.config;
    if config.is_null() {
        text.push_str("no PSAEnforcementConfig: the controllers of the rollout do not run in this cluster\n");
    } else {
        let mode = |part: &str, otherwise: &'static str| match config[part]["enforcementMode"].as_str() {
            None | Some("") => otherwise.to_owned(),
            Some(mode) => mode.to_owned(),
        };
        let wanted = mode("spec", "Restricted (default)");
        let is = mode("status", "not enabled");
        let _ = writeln!(text, "PSAEnforcementConfig cluster: spec {wanted}; status {is}");
    }
    for condition in config["status"]["conditions"].as_array().into_iter().flatten() {
        let part = |key: &str| condition[key].as_str().unwrap_or_default();
        let _ = write!(text, "  {}={} {}", part("type"), part("status"), part("reason"));
        // Since when all is well is of no interest.
        if part("status") == "True" || part("type") == "Ready" {
            let _ = write!(text, " since {}", part("lastTransitionTime"));
        }
        let _ = match part("message") {
            "" => writeln!(text),
            message => writeln!(text, ": {message}"),
        };
    }
    for instance in &live.instances {
        let _ = writeln!(text, "  {instance}");
    }
    waves_text(&live.rollout, text);
    let is_moving = config["status"]["enforcementMode"] == "Progressing";
    if is_moving && !live.unlabelled.is_empty() {
        let _ = writeln!(text, "  namespaces without their enforce label: {}", named(&live.unlabelled));
    }
    text.push('\n');
}

/// The waves, and what stopped one.
fn waves_text(rollout: &Value, text: &mut String) {
    let waves = rollout["status"]["waves"].as_array();
    for wave in waves.into_iter().flatten() {
        let part = |key: &str| wave[key].as_str().unwrap_or_default();
        let _ = writeln!(
            text,
            "  wave {}: {}, {} of {} namespaces labelled",
            part("name"),
            part("state"),
            wave["labelled"],
            wave["namespaces"]
        );
        for rejection in wave["rejected"].as_array().into_iter().flatten() {
            let part = |key: &str| rejection[key].as_str().unwrap_or_default();
            let _ = writeln!(
                text,
                "    {} in namespace {}, since {}: {}",
                part("workload"),
                part("namespace"),
                part("since"),
                part("message")
            );
        }
    }
}

fn named(names: &[String]) -> String {
    let mut shown = names.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > MOST_NAMED {
        let _ = write!(shown, " and {} more", names.len() - MOST_NAMED);
    }
    shown
}

pub(super) fn status_text(answer: &Answer) -> String {
    let namespaces = &answer.namespaces;
    let mut text = String::new();
    if let Some(live) = &answer.live {
        live_text(live, &mut text);
        let header = ["NAMESPACE", "LEVEL", "COMPLIES", "BLOCKERS", "SINCE", "REASON"].map(str::to_owned);
        let rows: Vec<_> = namespaces
            .iter()
            .map(|namespace| {
                let [name, level, complies, blockers, reason] = row(namespace);
                [name, level, complies, blockers, since_text(namespace), reason]
            })
            .collect();
        table(&header, &rows, &mut text);
    } else {
        let header = ["NAMESPACE", "LEVEL", "COMPLIES", "BLOCKERS", "REASON"].map(str::to_owned);
        table(&header, &namespaces.iter().map(row).collect::<Vec<_>>(), &mut text);
    }
    for namespace in namespaces {
        if !namespace.blockers.is_empty() || !namespace.is_compliant() {
            draw_namespace(namespace, &mut text);
        } else if let (Some(level), false) = (namespace.needed, namespace.needing.is_empty()) {
            let _ = writeln!(
                text,
                "\nnamespace {}, level {level}, needed by {}",
                namespace.name,
                named(&namespace.needing)
            );
        }
    }
    if !answer.skipped.is_empty() {
        text.push('\n');
    }
    for (constraint, why) in &answer.skipped {
        let _ =
            writeln!(text, "SecurityContextConstraints {constraint} admits nothing and is skipped: {why}");
    }
    for undecided in &answer.unplaced {
        let _ = writeln!(text, "\n{} {} is undecided: {}", undecided.kind, undecided.name, undecided.reason);
    }
    let blocking = namespaces.iter().filter(|namespace| namespace.class.is_some()).count();
    let undecided = namespaces.iter().filter(|namespace| is_undecided(namespace)).count();
    let is_judged = undecided == 0 && answer.unplaced.is_empty();
    let all = match namespaces.len() {
        1 => "1 namespace".to_owned(),
        count => format!("{count} namespaces"),
    };
    let _ = match blocking {
        0 if is_judged => write!(text, "\nnothing blocks enforcement in {all}"),
        0 => write!(text, "\nnot everything in {all} can be evaluated"),
        1 => write!(text, "\n1 of {all} blocks enforcement"),
        _ => write!(text, "\n{blocking} of {all} block enforcement"),
    };
    let _ = match undecided {
        0 => writeln!(text),
        1 => writeln!(text, "; 1 is undecided"),
        _ => writeln!(text, "; {undecided} are undecided"),
    };
    let has_opted_out =
        answer.live.as_ref().is_some_and(|live| live.config["spec"]["enforcementMode"] == "Legacy");
    if has_opted_out && blocking == 0 && is_judged {
        // What the controller wrote for the sake of violations it does not take back.
        let _ = writeln!(text, "spec.enforcementMode is Legacy until you change it:\n    {OPT_IN}");
    }
    text
}

fn is_undecided(namespace: &NamespaceReport) -> bool {
    namespace.undecided.is_some() || !namespace.doubts.is_empty()
}

fn row(namespace: &NamespaceReport) -> [String; 5] {
    [
        namespace.name.clone(),
        level_text(namespace),
        namespace.complies.map_or_else(|| "undecided".to_owned(), |level| level.to_string()),
        namespace.blockers.len().to_string(),
        reason_text(namespace).to_owned(),
    ]
}

fn draw_namespace(namespace: &NamespaceReport, text: &mut String) {
    let _ = write!(text, "\nnamespace {}", namespace.name);
    if let Some(level) = namespace.level {
        let _ = write!(text, ", level {level}");
    }
    if let Some(since) = &namespace.since {
        let _ = write!(text, ", violating since {since}");
    }
    text.push('\n');
    if let Some(why) = namespace.undecided {
        let _ = writeln!(text, "  undecided: {why}");
    }
    for doubt in &namespace.doubts {
        let _ = writeln!(text, "  {} {} is undecided: {}", doubt.kind, doubt.name, doubt.reason);
    }
    for group in groups(&namespace.blockers) {
        draw_blockers(&group, text);
    }
    for (constraint, fields) in &namespace.because {
        let _ = writeln!(text, "  its service accounts may use {constraint}: {}", fields.join(", "));
    }
    let (is_rejected, is_violating) = (
        namespace.blockers.iter().any(|blocker| blocker.rejection.is_some()),
        namespace.blockers.iter().any(|blocker| blocker.rejection.is_none()),
    );
    if is_rejected {
        text.push_str(match namespace.levels {
            LevelSource::Workloads => "  fix: change the pods that are rejected now\n",
            LevelSource::Constraints => {
                "  fix: change the pods that are rejected now, or let their service account use a constraint that admits them\n"
            }
        });
    }
    if let Some(reason) = namespace.class.and_then(Class::reason).filter(|_| is_violating) {
        let _ = writeln!(text, "  fix: change these fields, or {}", reason.remedy());
    } else if namespace.class.is_some() && is_violating {
        text.push_str(
            "  fix: change these fields, or set pod-security.kubernetes.io/enforce on the namespace\n",
        );
    }
    for command in namespace.commands() {
        let _ = writeln!(text, "    {command}");
    }
}

/// Blockers that are the same but for their names: the pods of one workload.
fn groups(blockers: &[Blocker]) -> Vec<Vec<&Blocker>> {
    let mut groups: Vec<Vec<&Blocker>> = Vec::new();
    for blocker in blockers {
        let is_same = |group: &&mut Vec<&Blocker>| {
            group.first().is_some_and(|first| {
                let own = Blocker { name: first.name.clone(), ..blocker.clone() };
                blocker.owner.is_some() && own == **first
            })
        };
        // They are sorted by name, so that most come one after another.
        match groups.iter_mut().rev().take(MOST_NAMED).find(is_same) {
            Some(group) => group.push(blocker),
            None => groups.push(vec![blocker]),
        }
    }
    groups
}

/// `Pod web-1 (and 2 others) of ReplicaSet web`
fn name_of(group: &[&Blocker]) -> String {
    let Some(first) = group.first() else { return String::new() };
    let mut name = format!("{} {}", first.kind, first.name);
    let _ = match group.len() {
        1 => Ok(()),
        2 => write!(name, " (and 1 other)"),
        count => write!(name, " (and {} others)", count - 1),
    };
    if let Some((kind, owner)) = &first.owner {
        let _ = write!(name, " of {kind} {owner}");
    }
    name
}

fn draw_blockers(group: &[&Blocker], text: &mut String) {
    let Some(first) = group.first() else { return };
    let _ = write!(text, "  {}", name_of(group));
    if let Some(constraint) = &first.constraint {
        let _ = write!(text, ", admitted by {constraint}");
        if first.is_by_user {
            let _ = write!(text, " through a user, not its service account {}", first.service_account);
        }
    }
    text.push('\n');
    if let Some(rejection) = &first.rejection {
        let _ = writeln!(text, "    {rejection}");
    }
    let rows: Vec<[String; 3]> = first
        .causes
        .iter()
        .map(|cause| [cause.path.clone(), cause.check.to_owned(), format!("allowed: {}", cause.allowed)])
        .collect();
    let mut causes = String::new();
    rows_text(&rows, &mut causes);
    for line in causes.lines() {
        let _ = writeln!(text, "    {line}");
    }
}

pub(super) fn plan_text(answer: &Answer) -> String {
    let mut text = String::new();
    let namespaces = &answer.namespaces;
    for undecided in &answer.unplaced {
        let _ = writeln!(text, "# undecided: {} {}: {}\n", undecided.kind, undecided.name, undecided.reason);
    }
    for namespace in namespaces.iter().filter(|namespace| !namespace.is_compliant()) {
        let _ = write!(text, "# {}: {}", namespace.name, reason_text(namespace));
        let _ = match &namespace.since {
            Some(since) => writeln!(text, ", since {since}"),
            None => writeln!(text),
        };
        if let Some(why) = namespace.undecided {
            let _ = writeln!(text, "#   {why}");
        }
        for doubt in &namespace.doubts {
            let _ = writeln!(text, "#   undecided: {} {}: {}", doubt.kind, doubt.name, doubt.reason);
        }
        for group in groups(&namespace.blockers) {
            let _ = writeln!(text, "#   {}", name_of(&group));
            if let Some(rejection) = group.first().and_then(|blocker| blocker.rejection.as_ref()) {
                let _ = writeln!(text, "#     {rejection}");
            }
            for cause in group.first().into_iter().flat_map(|blocker| &blocker.causes) {
                let _ = writeln!(text, "#     {}, allowed: {}", cause.path, cause.allowed);
            }
        }
        let commands = namespace.commands();
        let Some((last, better)) = commands.split_last() else {
            text.push('\n');
            continue;
        };
        for command in better {
            let _ = writeln!(text, "# better: {command}");
        }
        let _ = writeln!(text, "{last}\n");
    }
    if text.is_empty() {
        let _ = writeln!(text, "# nothing blocks enforcement in {} namespaces", namespaces.len());
    }
    text
}

pub(super) fn json_text(answer: &Answer) -> String {
    let namespaces = &answer.namespaces;
    let shown: Vec<Value> = namespaces
        .iter()
        .map(|namespace| {
            let blockers: Vec<Value> = namespace.blockers.iter().map(blocker_json).collect();
            let because: Vec<Value> = namespace
                .because
                .iter()
                .map(|(constraint, fields)| json!({"constraint": constraint, "fields": fields}))
                .collect();
            json!({
                "name": namespace.name,
                "level": namespace.level.map(|level| level.to_string()),
                "complies": namespace.complies.map(|level| level.to_string()),
                "blocks": namespace.class.is_some(),
                "undecided": namespace.undecided,
                "unjudged": namespace.doubts.iter().map(undecided_json).collect::<Vec<_>>(),
                "reason": namespace.class.and_then(Class::reason).map(Reason::as_str),
                "condition": namespace.class.map(Class::condition),
                "remedy": namespace.class.and_then(Class::reason).map(Reason::remedy),
                "since": namespace.since,
                "resolved": namespace.resolved,
                "command": namespace.commands().last(),
                "commands": namespace.commands(),
                "because": because,
                "neededBy": namespace.needing,
                "blockers": blockers,
            })
        })
        .collect();
    let blocking = namespaces.iter().filter(|namespace| namespace.class.is_some()).count();
    let skipped: Vec<Value> =
        answer.skipped.iter().map(|(name, why)| json!({"name": name, "reason": why})).collect();
    let undecided = namespaces.iter().filter(|namespace| is_undecided(namespace)).count();
    let mut all = json!({"violatingNamespaceCount": blocking, "undecidedNamespaceCount": undecided, "namespaces": shown,
        "unjudged": answer.unplaced.iter().map(undecided_json).collect::<Vec<_>>(),
        "skippedConstraints": skipped});
    if let Some(live) = &answer.live {
        all["instances"] = json!(live.instances);
        if !live.rollout.is_null() {
            all["waves"] = live.rollout["status"]["waves"].clone();
        }
        if !live.config.is_null() {
            all["spec"] = live.config["spec"].clone();
            all["status"] = live.config["status"].clone();
        }
    }
    format!("{all:#}\n")
}

fn undecided_json(undecided: &Undecided) -> Value {
    json!({"kind": undecided.kind, "name": undecided.name, "reason": undecided.reason})
}

fn blocker_json(blocker: &Blocker) -> Value {
    let causes: Vec<Value> = blocker
        .causes
        .iter()
        .map(|cause| {
            json!({"check": cause.check, "path": cause.path, "summary": cause.summary, "allowed": cause.allowed})
        })
        .collect();
    json!({
        "kind": blocker.kind,
        "name": blocker.name,
        "owner": blocker.owner.as_ref().map(|(kind, name)| json!({"kind": kind, "name": name})),
        "serviceAccount": blocker.service_account,
        "constraint": blocker.constraint,
        "throughUser": blocker.is_by_user,
        "rejection": blocker.rejection,
        "causes": causes,
    })
}

pub(crate) fn table<const N: usize>(header: &[String; N], rows: &[[String; N]], text: &mut String) {
    let all: Vec<[String; N]> = std::iter::once(header).chain(rows).cloned().collect();
    rows_text(&all, text);
}

/// Columns as wide as their widest cell; the last one is not filled up.
fn rows_text<const N: usize>(rows: &[[String; N]], text: &mut String) {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let fill = width.saturating_sub(cell.width()) + 2;
            line.push_str(cell);
            line.push_str(&" ".repeat(fill));
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}
