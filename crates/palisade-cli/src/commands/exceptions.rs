//! `palisade exceptions`: which exceptions are used, unused, expired, too broad or unreadable?

use std::{fmt::Write as _, path::PathBuf};

use clap::{Args, ValueEnum};
use palisade_base::{time::Time, version::NEWEST_MINOR};
use palisade_check::exceptions::Exceptions;
use palisade_model::compat::Compat;
use palisade_policy::exceptions::{
    object::is_exception,
    review::{ExceptionReview, review},
};
use serde_json::{Value, json};

use crate::{
    cluster::ClusterArgs,
    exceptions::{now, read_objects, read_paths},
    failure::{Exit, Failure},
    live::{self, LiveArgs},
    service,
    terminal::Terminal,
};

/// `palisade exceptions`
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ExceptionsArgs {
    /// Files, folders (searched for .yaml, .yml and .json), or - for stdin: exceptions and the workloads that they are for
    #[arg(required_unless_present = "cluster", conflicts_with = "cluster", value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Review the exceptions of a cluster instead of files
    #[arg(long)]
    pub cluster: bool,
    /// Which cluster.
    #[command(flatten)]
    pub connection: ClusterArgs,
    /// Namespace of objects that do not set one
    #[arg(long, short, value_name = "NAMESPACE", conflicts_with = "cluster")]
    pub namespace: Option<String>,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Format::Human, value_name = "FORMAT")]
    pub output: Format,
}

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Human,
    /// For programs.
    Json,
}

const AFTER_HELP: &str = "\
Exit status: 0 every exception is used and narrow, 1 some are unused, expired or too broad, 2 some cannot be read, 3 could not complete.";

/// As many exceptions as one answer holds.
const PAGE: usize = 500;

/// Runs the command.
pub fn run(args: &ExceptionsArgs, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let (objects, compat) = if args.cluster {
        service::block_on(of_cluster(&args.connection))?
    } else {
        (read_paths(&args.paths)?, Compat::kubernetes(NEWEST_MINOR))
    };
    if !args.cluster && !objects.iter().any(is_exception) {
        return Err(Failure::input("no SecurityException found"));
    }
    let exceptions = Exceptions::of_objects(&objects, now());
    let used = exceptions.uses(&objects, args.namespace.as_deref(), &compat, args.cluster);
    let reviews = review(exceptions.set(), &used, exceptions.now());
    match args.output {
        Format::Human => terminal.print(text(&reviews, exceptions.now()))?,
        Format::Json => {
            let report = json(&reviews, exceptions.now());
            terminal.print(format!("{report:#}\n"))?;
        }
    }
    Ok(exit(&reviews))
}

/// The exceptions of a cluster, as `palisade exceptions --cluster -o json` prints them.
pub(crate) async fn review_cluster(connection: &ClusterArgs) -> Result<Value, Failure> {
    let (objects, compat) = of_cluster(connection).await?;
    let exceptions = Exceptions::of_objects(&objects, now());
    let used = exceptions.uses(&objects, None, &compat, true);
    Ok(json(&review(exceptions.set(), &used, exceptions.now()), exceptions.now()))
}

fn exit(reviews: &[ExceptionReview<'_>]) -> Exit {
    if reviews.iter().any(|review| review.read.is_err()) {
        Exit::Input
    } else if reviews.iter().all(ExceptionReview::is_clean) {
        Exit::Clean
    } else {
        Exit::Findings
    }
}

/// The exceptions, namespaces, pods and workloads of a cluster.
async fn of_cluster(connection: &ClusterArgs) -> Result<(Vec<Value>, Compat), Failure> {
    let cluster = connection.connect().await?;
    let mut objects = Vec::new();
    for (path, api_version, kind) in [
        ("/apis/palisade.dev/v1alpha1/securityexceptions", "palisade.dev/v1alpha1", "SecurityException"),
        ("/api/v1/namespaces", "v1", "Namespace"),
    ] {
        let mut token = String::new();
        loop {
            let mut page = cluster.get(&format!("{path}?limit={PAGE}&continue={token}")).await?;
            page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
            let Value::Array(items) = page["items"].take() else {
                return Err(cluster.not_an_api_server(format!("the list at {path} has no items")).into());
            };
            objects.extend(items.into_iter().map(|mut item| {
                item["apiVersion"] = api_version.into();
                item["kind"] = kind.into();
                item
            }));
            if token.is_empty() {
                break;
            }
        }
    }
    let live = LiveArgs { cluster: true, connection: connection.clone(), all_namespaces: true, owned: true };
    let listed = live::workloads(&live, None).await?;
    for workload in listed.objects {
        objects.append(&mut read_objects(&workload.input)?);
    }
    Ok((objects, listed.compat))
}

/// One word for each exception, the most urgent first.
fn state(review: &ExceptionReview<'_>) -> &'static str {
    match review.read {
        Err(_) => "unreadable",
        Ok(_) if review.expired => "expired",
        Ok(_) if review.is_unused() => "unused",
        Ok(_) if !review.breadth.is_empty() => "broad",
        Ok(_) if !review.unused_allowances.is_empty() => "partly unused",
        Ok(_) => "used",
    }
}

/// What to know about an exception besides its state.
fn notes(review: &ExceptionReview<'_>, now: Time) -> Vec<String> {
    let exception = match review.read {
        Ok(exception) => exception,
        Err(error) => return vec![error.to_owned()],
    };
    let until = exception.until.format(false);
    let mut notes = Vec::new();
    if review.expired {
        notes.push(format!("ended at {until}: delete it, or review it and set a new end"));
    } else if review.is_unused() {
        notes.push("accepts nothing that a pod or workload does: delete it".to_owned());
    } else {
        let days = (exception.until.seconds - now.seconds) / 86_400;
        notes.push(format!("accepts {} findings, until {until} ({days} days)", review.used));
        for index in &review.unused_allowances {
            if let Some(allowance) = exception.allow.get(*index) {
                notes.push(format!(
                    "spec.allow[{index}] ({} {}) accepts nothing",
                    allowance.control, allowance.field
                ));
            }
        }
    }
    notes.extend(review.breadth.iter().map(ToString::to_string));
    notes
}

fn text(reviews: &[ExceptionReview<'_>], now: Time) -> String {
    let mut out = String::new();
    for review in reviews {
        let name = if review.name.is_empty() { "(unnamed)" } else { review.name };
        let _ = write!(out, "{name}: {}", state(review));
        if let Ok(exception) = review.read {
            let _ = write!(out, " (owner {}, ticket {})", exception.owner, exception.ticket);
        }
        out.push('\n');
        for note in notes(review, now) {
            let _ = writeln!(out, "  {note}");
        }
    }
    let count =
        |wanted: fn(&ExceptionReview<'_>) -> bool| reviews.iter().filter(|review| wanted(review)).count();
    let _ = writeln!(
        out,
        "{} exceptions: {} used, {} unused, {} expired, {} too broad, {} unreadable",
        reviews.len(),
        count(|review| review.used > 0),
        count(|review| review.used == 0 && review.is_unused()),
        count(|review| review.expired),
        count(|review| !review.breadth.is_empty()),
        count(|review| review.read.is_err()),
    );
    out
}

fn json(reviews: &[ExceptionReview<'_>], now: Time) -> Value {
    let all: Vec<Value> = reviews
        .iter()
        .map(|review| {
            let exception = review.read.ok();
            let breadth: Vec<String> = review.breadth.iter().map(ToString::to_string).collect();
            json!({
                "name": review.name,
                "state": state(review),
                "error": review.read.err(),
                "expired": review.expired,
                "unused": review.is_unused(),
                "used": review.used,
                "unusedAllowances": review.unused_allowances,
                "broad": breadth,
                "reason": exception.map(|exception| &exception.reason),
                "owner": exception.map(|exception| &exception.owner),
                "ticket": exception.map(|exception| &exception.ticket),
                "until": exception.map(|exception| exception.until.format(false)),
            })
        })
        .collect();
    json!({"exceptions": all, "now": now.format(false)})
}
