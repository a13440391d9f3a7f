//! `palisade check`: what is wrong with these manifests?

use std::{error::Error as _, path::Path};

use palisade_policy::standards::level::{Level, LevelVersion, Version};

use crate::{
    Exit,
    args::{ApiVersion, CheckArgs},
    config::{Config, ConfigError, glob_matches},
    engine::{Progress, default_jobs, in_order},
    input::{Input, discover},
    judge::{FileReport, Settings, judge_bytes},
    render::{Fragment, Output, Renderer, Sinks, Totals, human},
    suppression::Terms,
    terminal::Terminal,
};

/// Runs the command.
pub fn run(args: CheckArgs, terminal: &mut Terminal) -> Exit {
    let config = match if args.no_config { Ok(Config::default()) } else { Config::find(args.config.as_deref()) } {
        Ok(config) => config,
        Err(error) => return complain(&error, terminal),
    };
    let settings = settings(&args, &config);
    let mut outputs = if args.output.is_empty() { config.output.clone() } else { args.output.clone() };
    if outputs.is_empty() {
        outputs.push(Output::HUMAN);
    }
    if outputs.iter().filter(|output| output.file.is_none()).count() > 1 {
        terminal.say("error: only one format can go to stdout; give the others a file, as in `-o sarif=FILE`");
        return Exit::Input;
    }
    check(&args, &config, &settings, outputs, terminal)
}

fn complain(error: &ConfigError, terminal: &Terminal) -> Exit {
    let cause = error.source().map(|source| format!(": {source}")).unwrap_or_default();
    terminal.say(format!("error: {error}{}", cause.trim_end()));
    Exit::Input
}

/// The command line wins over the file.
fn settings(args: &CheckArgs, config: &Config) -> Settings {
    let level = args.level.or(config.level).unwrap_or(Level::Restricted);
    let version = args.policy_version.or(config.policy_version).unwrap_or(Version::Latest);
    let ApiVersion(compat) = args.kubernetes_version.or(config.kubernetes_version).unwrap_or_default();
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let mut settings = Settings::new(LevelVersion::new(level, version), compat, today);
    settings.namespace = args.namespace.clone().or_else(|| config.namespace.clone());
    settings.strict = args.strict || config.strict;
    settings.severities =
        config.severity.iter().map(|(code, &severity)| (code.clone(), severity.into())).collect();
    settings
}

fn check(
    args: &CheckArgs,
    config: &Config,
    settings: &Settings,
    outputs: Vec<Output>,
    terminal: &mut Terminal,
) -> Exit {
    let excluded = |path: &Path| {
        config.excludes(path) || args.input.exclude.iter().any(|pattern| glob_matches(pattern, path))
    };
    let found = discover(&args.input.paths, excluded);
    if found.inputs.is_empty() && found.problems.is_empty() {
        terminal.say("error: no manifests found: folders are searched for .yaml, .yml and .json files");
        return Exit::Input;
    }
    let style = human::Style { color: terminal.out_color, width: Terminal::width() };
    let renderers: Vec<Renderer> =
        outputs.into_iter().map(|output| Renderer::new(output, settings.policy, style)).collect();
    let mut sinks = match Sinks::open(renderers.clone(), &mut terminal.out) {
        Ok(sinks) => sinks,
        Err(error) => return terminal.cannot_write(&error),
    };
    let drawn = |report: FileReport| {
        let fragments: Vec<Fragment> = renderers.iter().map(|renderer| renderer.fragment(&report)).collect();
        (report, fragments)
    };

    for problem in found.problems {
        let (report, fragments) = drawn(FileReport::unreadable(problem));
        sinks.push(&report, &fragments, &mut terminal.out);
    }
    let work = |input: &Input| drawn(judge_input(input, settings, config));
    let progress = Progress::new(!args.quiet);
    in_order(&found.inputs, args.jobs.unwrap_or_else(default_jobs), &progress, work, |(report, fragments)| {
        sinks.push(&report, &fragments, &mut terminal.out);
    });
    let totals = match sinks.finish(&mut terminal.out) {
        Ok(totals) => totals,
        Err(error) => return terminal.cannot_write(&error),
    };
    if !args.quiet {
        terminal.say(summary(&totals, settings.policy));
    }
    exit(&totals)
}

fn judge_input(input: &Input, settings: &Settings, config: &Config) -> FileReport {
    match input.read() {
        Ok(bytes) => judge_bytes(&input.name(), &bytes, settings, &accepted(input, config)),
        Err(problem) => FileReport::unreadable(*problem),
    }
}

fn accepted(input: &Input, config: &Config) -> Vec<Terms> {
    match input {
        Input::File(path) if !config.ignore.is_empty() => config.accepted_in(path),
        _ => Vec::new(),
    }
}

/// Errors decide. Where nothing at all could be judged, the input is at fault, not what it says.
fn exit(totals: &Totals) -> Exit {
    if totals.errors > 0 && totals.objects == 0 {
        Exit::Input
    } else if totals.error_findings > 0 {
        Exit::Findings
    } else {
        Exit::Clean
    }
}

fn summary(totals: &Totals, policy: LevelVersion) -> String {
    let mut line = format!(
        "{} in {} judged at {policy}: {} allowed, {} denied",
        count(totals.objects, "object"),
        count(totals.files, "file"),
        totals.allowed,
        totals.denied
    );
    let mut more = Vec::new();
    if totals.error_findings > 0 {
        more.push(count(totals.error_findings, "error"));
    }
    if totals.warning_findings > 0 {
        more.push(count(totals.warning_findings, "warning"));
    }
    if totals.suppressed > 0 {
        more.push(format!("{} accepted", totals.suppressed));
    }
    if totals.skipped > 0 {
        more.push(format!("{} without a pod skipped", count(totals.skipped, "object")));
    }
    if !more.is_empty() {
        line.push_str("; ");
        line.push_str(&more.join(", "));
    }
    if totals.fixable > 0 {
        line.push_str(&format!("\n{} of the findings can be fixed with --fix; see what would change with --diff", totals.fixable));
    }
    line
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
