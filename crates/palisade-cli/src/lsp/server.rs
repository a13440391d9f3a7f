//! The server: a state of open documents, moved by messages, with messages as its output. No IO but configurations and charts.
//!
//! Implements: Language Server Protocol 3.17, as far as [`capabilities`] announces.
//! <https://microsoft.github.io/language-server-protocol/specifications/lsp/3.17/specification/>
//!
//! Documents are judged when no message waits: of several keystrokes only the last state is judged, and a document that did not
//! change never is. A document whose changes could not be followed is not judged at all until the client sends its text again.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use lsp_types::{
    CodeAction, CodeActionKind, CodeActionOptions, CodeActionParams, CodeActionProviderCapability,
    CompletionOptions, CompletionParams, Diagnostic as Shown, DidChangeTextDocumentParams,
    DidCloseTextDocumentParams, DidOpenTextDocumentParams, DocumentChanges, HoverContents, HoverParams,
    HoverProviderCapability, InitializeParams, InitializeResult, MarkupContent, MarkupKind, OneOf,
    OptionalVersionedTextDocumentIdentifier, PositionEncodingKind, PublishDiagnosticsParams, Range,
    ServerCapabilities, ServerInfo, TextDocumentEdit, TextDocumentSyncCapability, TextDocumentSyncKind,
    TextEdit, Uri, WorkspaceEdit,
};
use percent_encoding::percent_decode_str;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    charts::{self, ChartJob, ChartQueue, ChartResult},
    completion, findings, fixes, hover,
    message::{ErrorCode, Message, failure, notification, response},
    rules::{Options, RuleBook, Rules},
    text::Text,
};
use crate::{
    charts::{Overlay, chart_of, edited_values},
    config::FILE_NAME,
    diagnostic::Diagnostic,
    fix::{FixOptions, fix_finding, fix_text},
    judge::{FileReport, judge_text},
};

/// How many findings of a document are shown; a client draws each of them.
const MOST_SHOWN: usize = 2000;

/// How many fixes are offered at once. A client that cannot resolve an edit later gets them with edits, each of which judges the text.
const MOST_FIXES: usize = 100;
const MOST_FIXES_WITH_EDITS: usize = 10;

/// How the session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Session {
    /// Only `initialize` is accepted.
    New,
    Running,
    /// Only `exit` is accepted.
    ShutDown,
    /// It is over, after `shutdown` or without.
    Over {
        in_order: bool,
    },
}

/// What the client can do.
#[derive(Debug, Default)]
struct Client {
    resolves_edits: bool,
    versioned_edits: bool,
    registers_watchers: bool,
}

/// The state of the server.
#[derive(Debug)]
pub struct Server {
    session: Session,
    client: Client,
    rules: RuleBook,
    documents: BTreeMap<String, OpenDocument>,
    charts: BTreeMap<PathBuf, OpenChart>,
    /// The last state of any chart: the results of a chart that was closed and opened again are told apart by it.
    revision: u64,
    queue: Arc<ChartQueue>,
    output: Vec<Value>,
}

/// An open document.
#[derive(Debug)]
struct OpenDocument {
    uri: Uri,
    path: Option<PathBuf>,
    /// The chart that it is a part of.
    chart: Option<PathBuf>,
    version: i32,
    text: Text,
    state: State,
    /// Of the last state that was judged, and is of this version.
    judged: Option<Judged>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// To be judged.
    Changed,
    /// Judged, or waiting for its chart.
    Settled,
    /// The text is not known any more.
    Lost,
}

/// What was found in a state of a document.
#[derive(Debug)]
struct Judged {
    rules: Arc<Rules>,
    report: FileReport,
}

/// A chart with open documents.
#[derive(Debug, Default)]
struct OpenChart {
    revision: u64,
    is_changed: bool,
    /// Of this revision.
    result: Option<Arc<ChartResult>>,
}

impl Server {
    /// A server that renders charts by a queue.
    #[must_use]
    pub fn new(options: Options, queue: Arc<ChartQueue>) -> Self {
        Self {
            session: Session::New,
            client: Client::default(),
            rules: RuleBook::new(options),
            documents: BTreeMap::new(),
            charts: BTreeMap::new(),
            revision: 0,
            queue,
            output: Vec::new(),
        }
    }

    /// The messages to send.
    pub fn take_output(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.output)
    }

    /// Whether the session is over, and if so, whether it ended in order.
    #[must_use]
    pub const fn is_over(&self) -> Option<bool> {
        match self.session {
            Session::Over { in_order } => Some(in_order),
            _ => None,
        }
    }

    /// Works on a message.
    pub fn handle(&mut self, message: Message) {
        match message {
            Message::Ignored => {}
            Message::Unreadable { id, code, reason } => {
                // It may have been a change of any document.
                self.lose_all();
                self.output.push(failure(&id, code, &reason));
            }
            Message::Request { id, method, params } => {
                let reply = match self.request(&method, params) {
                    Ok(result) => response(&id, &result),
                    Err((code, reason)) => failure(&id, code, &reason),
                };
                self.output.push(reply);
            }
            Message::Notification { method, params } => self.notified(&method, params),
        }
    }

    /// Replies to a request that the client cancelled.
    pub fn cancel(&mut self, message: &Message) {
        if let Message::Request { id, .. } = message {
            self.output.push(failure(id, ErrorCode::Cancelled, "the request was cancelled"));
        }
    }

    /// Judges one of the documents that changed, or sends one of the charts to be rendered. Whether there was one.
    pub fn judge_next(&mut self) -> bool {
        let changed = self.documents.iter().find(|(_, open)| open.state == State::Changed);
        if let Some(key) = changed.map(|(key, _)| key.clone()) {
            self.judge(&key);
            return true;
        }
        let changed = self.charts.iter().find(|(_, chart)| chart.is_changed);
        if let Some(root) = changed.map(|(root, _)| root.clone()) {
            self.send_chart(&root);
            return true;
        }
        false
    }

    /// Shows what was found in a chart, if it has not changed since.
    pub(super) fn chart_done(&mut self, result: ChartResult) {
        let Some(chart) = self.charts.get_mut(&result.root) else { return };
        if chart.is_changed || chart.revision != result.revision {
            return;
        }
        let (root, result) = (result.root.clone(), Arc::new(result));
        chart.result = Some(Arc::clone(&result));
        let mut shown = Vec::new();
        for open in self.documents.values().filter(|open| open.chart.as_ref() == Some(&root)) {
            let Some(path) = open.path.as_deref().filter(|_| open.state == State::Settled) else { continue };
            let found = charts::in_file(&result, path, &open.text);
            shown.push((open.uri.clone(), open.version, found.into_iter().map(|(_, shown)| shown).collect()));
        }
        for (uri, version, found) in shown {
            self.publish(uri, Some(version), found);
        }
    }

    fn request(&mut self, method: &str, params: Value) -> Result<Value, (ErrorCode, String)> {
        match (self.session, method) {
            (Session::New, "initialize") => {
                let params: InitializeParams = read(params)?;
                self.client = client(&params);
                self.session = Session::Running;
                value(&InitializeResult {
                    capabilities: capabilities(),
                    server_info: Some(ServerInfo {
                        name: "palisade".to_owned(),
                        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
                    }),
                })
            }
            (Session::New, _) => {
                Err((ErrorCode::NotInitialized, "the first request must be initialize".to_owned()))
            }
            (Session::ShutDown | Session::Over { .. }, _) => {
                Err((ErrorCode::InvalidRequest, "the server was shut down".to_owned()))
            }
            (Session::Running, "initialize") => {
                Err((ErrorCode::InvalidRequest, "the server is initialized already".to_owned()))
            }
            (Session::Running, "shutdown") => {
                self.session = Session::ShutDown;
                Ok(Value::Null)
            }
            (Session::Running, "textDocument/hover") => self.hover(read(params)?),
            (Session::Running, "textDocument/completion") => self.completion(&read(params)?),
            (Session::Running, "textDocument/codeAction") => self.code_actions(&read(params)?),
            (Session::Running, "codeAction/resolve") => self.resolve(read(params)?),
            (Session::Running, _) => {
                Err((ErrorCode::MethodNotFound, format!("there is no method {method:?}")))
            }
        }
    }

    fn notified(&mut self, method: &str, params: Value) {
        if method == "exit" {
            self.session = Session::Over { in_order: self.session == Session::ShutDown };
            return;
        }
        if self.session != Session::Running {
            return;
        }
        let result = match method {
            "initialized" => {
                self.register_watchers();
                Ok(())
            }
            "textDocument/didOpen" => read(params).map(|params| self.opened(params)),
            "textDocument/didChange" => match read(params) {
                Ok(params) => {
                    self.changed(params);
                    Ok(())
                }
                Err(problem) => {
                    self.lose_all();
                    Err(problem)
                }
            },
            "textDocument/didClose" => read(params).map(|params| self.closed(&params)),
            // Configurations, templates and values may have changed beside the open documents.
            "textDocument/didSave"
            | "workspace/didChangeWatchedFiles"
            | "workspace/didChangeConfiguration" => {
                self.start_over();
                Ok(())
            }
            _ => Ok(()),
        };
        if let Err((_, reason)) = result {
            self.log(&format!("{method}: {reason}"));
        }
    }

    fn opened(&mut self, params: DidOpenTextDocumentParams) {
        let document = params.text_document;
        let path = path_of(document.uri.as_str());
        let chart = path.as_deref().and_then(chart_of);
        let key = document.uri.as_str().to_owned();
        let open = OpenDocument {
            uri: document.uri,
            path,
            chart,
            version: document.version,
            text: Text::new(document.text),
            state: State::Changed,
            judged: None,
        };
        self.documents.insert(key, open);
    }

    fn changed(&mut self, params: DidChangeTextDocumentParams) {
        let (uri, version) = (params.text_document.uri, params.text_document.version);
        let Some(open) = self.documents.get_mut(uri.as_str()) else {
            self.log(&format!("a change of {}, which is not open", uri.as_str()));
            return;
        };
        // A change that comes twice, or too late, is not of this text.
        if version <= open.version {
            return;
        }
        open.version = version;
        open.judged = None;
        for change in params.content_changes {
            if change.range.is_none() {
                open.state = State::Changed;
            } else if open.state == State::Lost {
                continue;
            }
            match open.text.change(change) {
                Ok(()) => open.state = State::Changed,
                Err(_) => open.state = State::Lost,
            }
        }
        if open.state == State::Lost {
            let shown = lost();
            self.publish(uri, Some(version), vec![shown]);
        }
    }

    fn closed(&mut self, params: &DidCloseTextDocumentParams) {
        let uri = &params.text_document.uri;
        let Some(open) = self.documents.remove(uri.as_str()) else { return };
        self.publish(uri.clone(), None, Vec::new());
        let Some(root) = open.chart else { return };
        if self.documents.values().any(|other| other.chart.as_ref() == Some(&root)) {
            // What is on disk applies again.
            self.change_chart(&root);
        } else {
            self.charts.remove(&root);
        }
    }

    /// A message was lost: no document is known to be what the client has.
    fn lose_all(&mut self) {
        let mut shown = Vec::new();
        for open in self.documents.values_mut() {
            open.state = State::Lost;
            open.judged = None;
            shown.push((open.uri.clone(), open.version));
        }
        self.charts.clear();
        for (uri, version) in shown {
            self.publish(uri, Some(version), vec![lost()]);
        }
    }

    /// Judges everything again, by configurations and charts as they are on disk.
    fn start_over(&mut self) {
        self.rules.forget();
        for open in self.documents.values_mut().filter(|open| open.state == State::Settled) {
            open.chart = open.path.as_deref().and_then(chart_of);
            open.state = State::Changed;
        }
    }

    fn judge(&mut self, key: &str) {
        let Some(open) = self.documents.get_mut(key) else { return };
        open.state = State::Settled;
        open.judged = None;
        let (uri, version, chart) = (open.uri.clone(), open.version, open.chart.clone());
        let rules = match self.rules.rules(open.path.as_deref()) {
            Ok(rules) => rules,
            Err(error) => {
                let shown = findings::notice("config/invalid", format!("not checked: {error}"));
                self.publish(uri, Some(version), vec![shown]);
                return;
            }
        };
        let path = open.path.as_deref();
        if path.is_some_and(|path| rules.config.excludes(path)) {
            self.publish(uri, Some(version), Vec::new());
            return;
        }
        if let Some(root) = chart {
            self.change_chart(&root);
            return;
        }
        let name = name_of(path, &uri);
        let accepted = path.map(|path| rules.config.accepted_in(path)).unwrap_or_default();
        let text = open.text.as_str();
        let mut report = judge_text(&name, text, &rules.settings, &accepted);
        report.set_aside(text.as_bytes());
        report.name_foreign(false);
        report.grade(&rules.settings.severities);
        let shown: Vec<Shown> = report
            .diagnostics
            .iter()
            .take(MOST_SHOWN)
            .map(|finding| findings::shown(finding, &open.text, &uri))
            .collect();
        open.judged = Some(Judged { rules, report });
        self.publish(uri, Some(version), shown);
    }

    fn change_chart(&mut self, root: &Path) {
        let chart = self.charts.entry(root.to_owned()).or_default();
        self.revision += 1;
        chart.revision = self.revision;
        chart.is_changed = true;
        chart.result = None;
    }

    fn send_chart(&mut self, root: &Path) {
        let rules = self.rules.rules(Some(&root.join("Chart.yaml")));
        let Some(chart) = self.charts.get_mut(root) else { return };
        chart.is_changed = false;
        // What is wrong with the configuration is shown with each document.
        let Ok(rules) = rules else { return };
        let mut overlay = Overlay::new();
        for open in self.documents.values().filter(|open| open.state != State::Lost) {
            let below = open.path.as_deref().and_then(|path| path.strip_prefix(root).ok());
            if let Some(below) = below.and_then(Path::to_str) {
                overlay.insert(below.to_owned(), open.text.as_str().as_bytes().to_vec());
            }
        }
        self.queue.add(ChartJob { root: root.to_owned(), revision: chart.revision, overlay, rules });
    }

    fn hover(&mut self, params: HoverParams) -> Result<Value, (ErrorCode, String)> {
        let place = params.text_document_position_params;
        let open = self.document(&place.text_document.uri)?;
        if open.chart.is_some() {
            return Ok(Value::Null);
        }
        let path = open.path.clone();
        let (text, offset) = (open.text.as_str().to_owned(), open.text.offset(place.position));
        let Ok(rules) = self.rules.rules(path.as_deref()) else { return Ok(Value::Null) };
        let Some(found) = hover::hover(&text, offset, &rules.settings.compat) else { return Ok(Value::Null) };
        let open = self.document(&place.text_document.uri)?;
        value(&lsp_types::Hover {
            contents: HoverContents::Markup(MarkupContent {
                kind: MarkupKind::Markdown,
                value: found.markdown,
            }),
            range: Some(open.text.range(found.span)),
        })
    }

    fn completion(&mut self, params: &CompletionParams) -> Result<Value, (ErrorCode, String)> {
        let place = &params.text_document_position;
        let open = self.document(&place.text_document.uri)?;
        let path = open.path.clone();
        let Ok(rules) = self.rules.rules(path.as_deref()) else { return Ok(json!([])) };
        let open = self.document(&place.text_document.uri)?;
        let is_values = open.chart.is_some()
            && path.as_deref().and_then(Path::file_name).is_some_and(|name| name == "values.yaml");
        let offset = open.text.offset(place.position);
        let items = completion::completions(open.text.as_str(), offset, is_values, &rules.settings.compat);
        value(&items)
    }

    fn document(&self, uri: &Uri) -> Result<&OpenDocument, (ErrorCode, String)> {
        match self.documents.get(uri.as_str()) {
            Some(open) if open.state != State::Lost => Ok(open),
            Some(_) => Err((ErrorCode::ContentModified, LOST.to_owned())),
            None => Err((ErrorCode::InvalidParams, format!("{} is not open", uri.as_str()))),
        }
    }

    fn code_actions(&mut self, params: &CodeActionParams) -> Result<Value, (ErrorCode, String)> {
        let uri = &params.text_document.uri;
        let key = uri.as_str().to_owned();
        if self.document(uri)?.state == State::Changed {
            self.judge(&key);
        }
        let open = self.document(uri)?;
        let only = params.context.only.as_deref();
        let most = if self.client.resolves_edits { MOST_FIXES } else { MOST_FIXES_WITH_EDITS };
        let revision = self.revision_of(open);
        let mut actions = Vec::new();
        if fixes::is_wanted(only, CodeActionKind::QUICKFIX.as_str()) {
            for (number, (finding, shown)) in self.findings(open).into_iter().enumerate() {
                if !overlaps(shown.range, params.range) {
                    continue;
                }
                if actions.len() == most {
                    break;
                }
                let Some(title) = fixes::title(finding) else { continue };
                let fix = Fix::Finding { number };
                let which = Which { uri: key.clone(), version: open.version, revision, fix };
                actions.push((title, CodeActionKind::QUICKFIX, Some(vec![shown]), which));
            }
        }
        // An edit of the whole file takes long; a client that wants it at once says so.
        let of_file = open.judged.as_ref().filter(|_| only.is_some() || self.client.resolves_edits);
        if let Some(judged) = of_file {
            let has = |safe: bool| {
                judged.report.diagnostics.iter().any(|f| f.effect().is_some_and(|e| e.is_safe() == safe))
            };
            for (kind, title, may_change) in [
                (fixes::FIX_ALL, "Make all safe fixes in this file", false),
                (
                    fixes::UNSAFE_FIX_ALL,
                    "Make all fixes in this file, also those that may change behaviour",
                    true,
                ),
            ] {
                if fixes::is_wanted(only, kind) && has(!may_change) {
                    let fix = Fix::All { may_change };
                    let which = Which { uri: key.clone(), version: open.version, revision, fix };
                    actions.push((title.to_owned(), CodeActionKind::from(kind), None, which));
                }
            }
        }
        let mut offered = Vec::new();
        for (title, kind, diagnostics, which) in actions {
            let mut action = CodeAction { title, kind: Some(kind), diagnostics, ..CodeAction::default() };
            if self.client.resolves_edits {
                action.data = serde_json::to_value(&which).ok();
            } else {
                // What cannot be made is not offered.
                match self.edit(&which) {
                    Ok(edit) => action.edit = Some(edit),
                    Err(_) => continue,
                }
            }
            offered.push(action);
        }
        value(&offered)
    }

    /// The state of the chart that a document is a part of.
    fn revision_of(&self, open: &OpenDocument) -> Option<u64> {
        let chart = self.charts.get(open.chart.as_ref()?)?;
        Some(chart.revision)
    }

    /// The findings that are shown in a document, in their order.
    fn findings<'s>(&'s self, open: &'s OpenDocument) -> Vec<(&'s Diagnostic, Shown)> {
        if let Some(judged) = &open.judged {
            let shown = judged.report.diagnostics.iter();
            return shown.map(|finding| (finding, findings::shown(finding, &open.text, &open.uri))).collect();
        }
        let result =
            open.chart.as_ref().and_then(|root| self.charts.get(root)).and_then(|c| c.result.as_deref());
        match (result, open.path.as_deref()) {
            (Some(result), Some(path)) => charts::in_file(result, path, &open.text),
            _ => Vec::new(),
        }
    }

    fn resolve(&mut self, mut action: CodeAction) -> Result<Value, (ErrorCode, String)> {
        let which = action.data.clone().and_then(|data| serde_json::from_value::<Which>(data).ok());
        let which =
            which.ok_or((ErrorCode::InvalidParams, "the action is not one of palisade's".to_owned()))?;
        action.edit = Some(self.edit(&which)?);
        value(&action)
    }

    fn edit(&mut self, which: &Which) -> Result<WorkspaceEdit, (ErrorCode, String)> {
        let failed = |reason: &str| (ErrorCode::RequestFailed, reason.to_owned());
        let stale = || (ErrorCode::ContentModified, "the text has changed since".to_owned());
        let open = self.documents.get(&which.uri).ok_or_else(stale)?;
        let is_current = open.version == which.version && self.revision_of(open) == which.revision;
        if !is_current || open.state != State::Settled {
            return Err(stale());
        }
        let number = match which.fix {
            Fix::All { may_change } => {
                let judged = open.judged.as_ref().ok_or_else(stale)?;
                let rules = &judged.rules;
                let accepted = open.path.as_deref().map(|path| rules.config.accepted_in(path));
                let options = FixOptions { may_change, partial: false };
                let (name, text) = (&judged.report.file, open.text.as_str());
                let fixed = fix_text(name, text, &rules.settings, &accepted.unwrap_or_default(), options);
                let edits = fixed.text.map(|new| fixes::edits(text, &new)).unwrap_or_default();
                return Ok(self.workspace_edit(&open.uri, Some(open.version), edits));
            }
            Fix::Finding { number } => number,
        };
        let all = self.findings(open);
        let finding = all.get(number).map(|(finding, _)| *finding).ok_or_else(stale)?;
        if let Some(judged) = &open.judged {
            let accepted = open.path.as_deref().map(|path| judged.rules.config.accepted_in(path));
            let (name, text) = (&judged.report.file, open.text.as_str());
            let (settings, accepted) = (&judged.rules.settings, accepted.unwrap_or_default());
            let new = fix_finding(name, text, settings, &accepted, &judged.report, finding)
                .map_err(|reason| failed(&format!("not fixed: {reason}")))?;
            return Ok(self.workspace_edit(&open.uri, Some(open.version), fixes::edits(text, &new)));
        }
        let patch = finding.values.as_ref().ok_or_else(|| failed("there is no automatic fix"))?;
        let file = Path::new(&*patch.file);
        let target = self.documents.values().find(|open| open.path.as_deref() == Some(file));
        let (uri, version, text) = match target {
            Some(target) if target.state == State::Settled => {
                (target.uri.clone(), Some(target.version), target.text.as_str().to_owned())
            }
            Some(_) => return Err(stale()),
            None => {
                let text = std::fs::read_to_string(file).map_err(|error| failed(&error.to_string()))?;
                (uri_of(file).ok_or_else(|| failed("the path of the values is no URI"))?, None, text)
            }
        };
        let new = edited_values(&text, &patch.keys)
            .ok_or_else(|| failed("the settings cannot be written into the values"))?;
        Ok(self.workspace_edit(&uri, version, fixes::edits(&text, &new)))
    }

    fn workspace_edit(&self, uri: &Uri, version: Option<i32>, edits: Vec<TextEdit>) -> WorkspaceEdit {
        if self.client.versioned_edits {
            let text_document = OptionalVersionedTextDocumentIdentifier { uri: uri.clone(), version };
            let edits = edits.into_iter().map(OneOf::Left).collect();
            let changes = DocumentChanges::Edits(vec![TextDocumentEdit { text_document, edits }]);
            return WorkspaceEdit { document_changes: Some(changes), ..WorkspaceEdit::default() };
        }
        #[expect(clippy::mutable_key_type, reason = "the type of lsp-types; a URI does not change")]
        let changes = std::collections::HashMap::from([(uri.clone(), edits)]);
        WorkspaceEdit { changes: Some(changes), ..WorkspaceEdit::default() }
    }

    fn register_watchers(&mut self) {
        if !self.client.registers_watchers {
            return;
        }
        let watchers: Vec<Value> = [FILE_NAME, "Chart.yaml", "values.yaml", "templates/**"]
            .iter()
            .map(|name| json!({"globPattern": format!("**/{name}")}))
            .collect();
        self.output.push(
            json!({"jsonrpc": "2.0", "id": "watch", "method": "client/registerCapability", "params": {
            "registrations": [{"id": "watch", "method": "workspace/didChangeWatchedFiles",
                "registerOptions": {"watchers": watchers}}]}}),
        );
    }

    fn publish(&mut self, uri: Uri, version: Option<i32>, diagnostics: Vec<Shown>) {
        let params = PublishDiagnosticsParams { uri, diagnostics, version };
        if let Ok(params) = serde_json::to_value(&params) {
            self.output.push(notification("textDocument/publishDiagnostics", &params));
        }
    }

    fn log(&mut self, message: &str) {
        self.output.push(notification("window/logMessage", &json!({"type": 2, "message": message})));
    }
}

/// What the server does.
fn capabilities() -> ServerCapabilities {
    ServerCapabilities {
        position_encoding: Some(PositionEncodingKind::UTF16),
        text_document_sync: Some(TextDocumentSyncCapability::Options(lsp_types::TextDocumentSyncOptions {
            open_close: Some(true),
            change: Some(TextDocumentSyncKind::INCREMENTAL),
            save: Some(lsp_types::TextDocumentSyncSaveOptions::Supported(true)),
            ..lsp_types::TextDocumentSyncOptions::default()
        })),
        hover_provider: Some(HoverProviderCapability::Simple(true)),
        completion_provider: Some(CompletionOptions {
            trigger_characters: Some([" ", "-", "["].map(str::to_owned).to_vec()),
            ..CompletionOptions::default()
        }),
        code_action_provider: Some(CodeActionProviderCapability::Options(CodeActionOptions {
            code_action_kinds: Some(vec![
                CodeActionKind::QUICKFIX,
                CodeActionKind::from(fixes::FIX_ALL),
                CodeActionKind::from(fixes::UNSAFE_FIX_ALL),
            ]),
            resolve_provider: Some(true),
            ..CodeActionOptions::default()
        })),
        ..ServerCapabilities::default()
    }
}

fn client(params: &InitializeParams) -> Client {
    let capabilities = &params.capabilities;
    let actions = capabilities.text_document.as_ref().and_then(|document| document.code_action.as_ref());
    let resolves = actions.and_then(|actions| actions.resolve_support.as_ref());
    let workspace = capabilities.workspace.as_ref();
    let edits = workspace.and_then(|workspace| workspace.workspace_edit.as_ref());
    let watchers = workspace.and_then(|workspace| workspace.did_change_watched_files.as_ref());
    Client {
        resolves_edits: actions.is_some_and(|actions| actions.data_support == Some(true))
            && resolves.is_some_and(|support| support.properties.iter().any(|name| name == "edit")),
        versioned_edits: edits.is_some_and(|edits| edits.document_changes == Some(true)),
        registers_watchers: watchers.is_some_and(|watchers| watchers.dynamic_registration == Some(true)),
    }
}

/// Which fix an action stands for; the client keeps it until it is resolved.
#[derive(Debug, Serialize, serde::Deserialize)]
struct Which {
    uri: String,
    version: i32,
    /// The state of the chart, if the document is a part of one.
    revision: Option<u64>,
    fix: Fix,
}

#[derive(Debug, Clone, Copy, Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Fix {
    /// Of a finding, by its number in the document.
    Finding { number: usize },
    /// Of the file.
    All { may_change: bool },
}

const LOST: &str = "not checked: a change of the text could not be read; close and open the file";

fn lost() -> Shown {
    findings::notice("lsp/lost", LOST.to_owned())
}

fn overlaps(a: Range, b: Range) -> bool {
    a.start <= b.end && b.start <= a.end
}

fn read<T: DeserializeOwned>(params: Value) -> Result<T, (ErrorCode, String)> {
    serde_json::from_value(params).map_err(|error| (ErrorCode::InvalidParams, error.to_string()))
}

fn value(result: &impl Serialize) -> Result<Value, (ErrorCode, String)> {
    serde_json::to_value(result).map_err(|error| (ErrorCode::RequestFailed, error.to_string()))
}

/// The path of a `file` URI.
fn path_of(uri: &str) -> Option<PathBuf> {
    let rest = uri.strip_prefix("file://")?;
    // The authority of a local file is empty, or localhost.
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    let path = path.split(['?', '#']).next()?;
    let path = percent_decode_str(path).decode_utf8().ok()?;
    path.starts_with('/').then(|| PathBuf::from(path.into_owned()))
}

fn uri_of(path: &Path) -> Option<Uri> {
    const PLAIN: &percent_encoding::AsciiSet =
        &percent_encoding::NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    let path = path.to_str()?;
    format!("file://{}", percent_encoding::utf8_percent_encode(path, PLAIN)).parse().ok()
}

/// The name of a document in findings.
fn name_of(path: Option<&Path>, uri: &Uri) -> Arc<str> {
    let name = path.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    Arc::from(name.unwrap_or_else(|| uri.as_str().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_paths_and_back() {
        for (uri, path) in [
            ("file:///a/b.yaml", Some("/a/b.yaml")),
            ("file:///a%20b/%C3%A9.yaml", Some("/a b/é.yaml")),
            ("file://localhost/a", Some("/a")),
            ("file://server/a", None),
            ("untitled:Untitled-1", None),
            ("file:///%ff", None),
            ("https://example.com/a", None),
        ] {
            assert_eq!(path_of(uri).as_deref(), path.map(Path::new), "{uri}");
        }
        for path in ["/a/b.yaml", "/a b/é#?%.yaml"] {
            assert_eq!(path_of(uri_of(Path::new(path)).unwrap().as_str()).as_deref(), Some(Path::new(path)));
        }
    }
}
