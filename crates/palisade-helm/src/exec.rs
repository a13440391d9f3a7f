//! Running templates: what Go's text/template does, within a budget, with the source of every byte.
//!
//! Implements: Go, package text/template, exec.go, and the functions of Helm that run templates.
//! <https://helm.sh/docs/chart_template_guide/>

use std::{
    collections::{BTreeSet, HashMap},
    rc::Rc,
};

use crate::{
    error::{Failed, NamedText, TemplateErrorKind},
    functions,
    parse::{self, Branch, Define, Node, Operand, Pipeline, Range, Tree},
    text::{NO_FILE, Out, PathId, ScopeId, SetId, Source, Text},
    value::{Data, Heap, Map, Value, is_true},
};

/// What a chart may cost. Far above what public charts need.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Nodes and calls.
    pub steps: u64,
    /// Bytes that are written, by templates and by functions.
    pub bytes: u64,
    /// Templates that call each other.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { steps: 4_000_000, bytes: 256 << 20, depth: 120 }
    }
}

/// The templates that can be called by name.
pub(crate) type Defines = HashMap<Rc<str>, (u32, Rc<Define>)>;

/// Everything that running needs.
pub(crate) struct Interpreter<'r> {
    pub(crate) heap: Heap,
    pub(crate) files: &'r [NamedText],
    pub(crate) defines: Rc<Defines>,
    pub(crate) api_versions: &'r dyn Fn(&str) -> bool,
    pub(crate) steps: u64,
    pub(crate) bytes: u64,
    /// Whether `fail` and `required` end the rendering.
    pub(crate) may_refuse: bool,
    depth: usize,
    nesting: usize,
    limits: Limits,
    scope: ScopeId,
    /// The paths of values that were looked at.
    pub(crate) read: BTreeSet<PathId>,
    parsed: HashMap<Rc<str>, Rc<Tree>>,
}

/// Where a template is from: a file, or a value that `tpl` runs.
#[derive(Clone)]
struct Origin {
    file: u32,
    text: Rc<str>,
    /// For `tpl`: the action that runs it, and the values it is made of.
    by: Option<(u32, Range, SetId)>,
}

/// The variables of a template.
struct Frame {
    origin: Origin,
    variables: Vec<(Rc<str>, Value)>,
}

enum Flow {
    Next,
    Break,
    Continue,
}

impl<'r> Interpreter<'r> {
    pub(crate) fn new(
        files: &'r [NamedText],
        defines: Rc<Defines>,
        api_versions: &'r dyn Fn(&str) -> bool,
        limits: Limits,
    ) -> Self {
        Self {
            heap: Heap::new(),
            files,
            defines,
            api_versions,
            steps: 0,
            bytes: 0,
            may_refuse: true,
            depth: 0,
            nesting: 0,
            limits,
            scope: 0,
            read: BTreeSet::new(),
            parsed: HashMap::new(),
        }
    }

    /// Counts work.
    pub(crate) fn charge(&mut self, steps: u64, bytes: usize) -> Result<(), Failed> {
        self.steps = self.steps.saturating_add(steps);
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if self.steps > self.limits.steps {
            return Err(TemplateErrorKind::Limit("4,000,000 steps").into());
        }
        if self.bytes > self.limits.bytes {
            return Err(TemplateErrorKind::Limit("256 MiB of text").into());
        }
        Ok(())
    }

    /// Runs the body of a file.
    pub(crate) fn run_file(&mut self, file: u32, tree: &Tree, dot: &Value) -> Result<Text, Failed> {
        let text = self.files.get(file as usize).map_or_else(|| "".into(), |file| Rc::clone(&file.text));
        self.run(&tree.body.body, Origin { file, text, by: None }, dot)
    }

    fn run(&mut self, body: &[Node], origin: Origin, dot: &Value) -> Result<Text, Failed> {
        self.depth += 1;
        if self.depth > self.limits.depth {
            self.depth -= 1;
            return Err(TemplateErrorKind::Limit("120 templates that call each other").into());
        }
        let mut out = Out::default();
        let mut frame = Frame { origin, variables: vec![("$".into(), dot.clone())] };
        let result = self.nodes(body, &mut frame, dot, &mut out);
        self.depth -= 1;
        result?;
        Ok(out.finish())
    }

    /// Runs a template by name.
    pub(crate) fn include(&mut self, name: &str, dot: &Value) -> Result<Text, Failed> {
        let Some((file, define)) = self.defines.get(name).cloned() else {
            return Err(TemplateErrorKind::UnknownTemplate(name.to_owned()).into());
        };
        let text = self.files.get(file as usize).map_or_else(|| "".into(), |file| Rc::clone(&file.text));
        self.run(&define.body, Origin { file, text, by: None }, dot)
    }

    /// Runs a value as a template.
    pub(crate) fn tpl(&mut self, template: &Value, dot: &Value, at: (u32, Range)) -> Result<Text, Failed> {
        let Data::Str(text) = &template.data else { return Err(Failed::call("tpl", "a string is needed")) };
        if !text.text.contains("{{") {
            return Ok(text.clone());
        }
        let deps = self.heap.deps(template);
        let tree = if let Some(tree) = self.parsed.get(&text.text) {
            Rc::clone(tree)
        } else {
            let tree = parse::parse(&text.text)
                .map_err(|misread| Failed::from(TemplateErrorKind::Syntax(misread.error)))?;
            let tree = Rc::new(tree);
            self.charge(1, text.text.len())?;
            self.parsed.insert(Rc::clone(&text.text), Rc::clone(&tree));
            tree
        };
        let origin = Origin { file: NO_FILE, text: Rc::clone(&text.text), by: Some((at.0, at.1, deps)) };
        if tree.defines.is_empty() {
            return self.run(&tree.body.body, origin, dot);
        }
        // What it defines is its own; the text of those templates is the value's.
        let outer = Rc::clone(&self.defines);
        let mut own = Defines::clone(&outer);
        for define in &tree.defines {
            own.insert(Rc::clone(&define.name), (NO_FILE, Rc::clone(define)));
        }
        self.defines = Rc::new(own);
        let result = self.run(&tree.body.body, origin, dot);
        self.defines = outer;
        result
    }

    fn source(&mut self, origin: &Origin, span: Range, data: SetId) -> u32 {
        let (file, span, data) = match origin.by {
            Some((file, span, by)) => (file, span, self.heap.union(data, by)),
            None => (origin.file, span, data),
        };
        let scope = self.scope;
        self.heap.source(Source { file, span, data, scope })
    }

    fn nodes(
        &mut self,
        nodes: &[Node],
        frame: &mut Frame,
        dot: &Value,
        out: &mut Out,
    ) -> Result<Flow, Failed> {
        self.enter()?;
        let flow = self.each(nodes, frame, dot, out);
        self.nesting -= 1;
        flow
    }

    /// Counts blocks and parentheses inside each other, over all templates: each takes a part of the stack.
    fn enter(&mut self) -> Result<(), Failed> {
        const MOST: usize = 1_500;
        if self.nesting >= MOST {
            return Err(TemplateErrorKind::Limit("1,500 blocks inside each other").into());
        }
        self.nesting += 1;
        Ok(())
    }

    fn each(
        &mut self,
        nodes: &[Node],
        frame: &mut Frame,
        dot: &Value,
        out: &mut Out,
    ) -> Result<Flow, Failed> {
        for node in nodes {
            self.charge(1, 0)?;
            match node {
                Node::Text(range) => {
                    let whole = Rc::clone(&frame.origin.text);
                    let text = whole.get(range.start as usize..range.end as usize).unwrap_or_default();
                    self.charge(0, text.len())?;
                    if frame.origin.by.is_some() {
                        let source = self.source(&frame.origin, *range, 0);
                        out.push_str(text, source);
                    } else {
                        let source = self.source(&frame.origin, Range::default(), 0);
                        out.push_literal(text, source, range.start);
                    }
                }
                Node::Action(pipe) => {
                    let value = self.pipeline(pipe, frame, dot)?;
                    if pipe.declared.is_empty() {
                        let place = (frame.origin.file, pipe.span);
                        self.print(&value, &frame.origin, pipe.span, out)
                            .map_err(|error| error.located(place.0, place.1))?;
                    }
                }
                Node::If(branch) => match self.conditional(branch, false, frame, dot, out)? {
                    Flow::Next => {}
                    flow => return Ok(flow),
                },
                Node::With(branch) => match self.conditional(branch, true, frame, dot, out)? {
                    Flow::Next => {}
                    flow => return Ok(flow),
                },
                Node::Range(branch) => match self.range(branch, frame, dot, out)? {
                    Flow::Next => {}
                    flow => return Ok(flow),
                },
                Node::Template { name, pipe, span } => {
                    let value = match pipe {
                        Some(pipe) => self.pipeline(pipe, frame, dot)?,
                        None => Value::NIL,
                    };
                    let text = self
                        .include(name, &value)
                        .map_err(|error| error.located(frame.origin.file, *span))?;
                    self.print(&Value::text(text), &frame.origin, *span, out)?;
                }
                Node::Break => return Ok(Flow::Break),
                Node::Continue => return Ok(Flow::Continue),
            }
        }
        Ok(Flow::Next)
    }

    fn conditional(
        &mut self,
        branch: &Branch,
        moves: bool,
        frame: &mut Frame,
        dot: &Value,
        out: &mut Out,
    ) -> Result<Flow, Failed> {
        let known = frame.variables.len();
        let value = self.pipeline(&branch.pipe, frame, dot)?;
        let deps = self.heap.deciding(&value);
        let outer = self.scope;
        self.scope = self.heap.scope(outer, deps);
        let flow = if is_true(&self.heap, &value) {
            self.nodes(&branch.body, frame, if moves { &value } else { dot }, out)
        } else {
            self.nodes(&branch.otherwise, frame, dot, out)
        };
        self.scope = outer;
        frame.variables.truncate(known);
        flow
    }

    fn range(
        &mut self,
        branch: &Branch,
        frame: &mut Frame,
        dot: &Value,
        out: &mut Out,
    ) -> Result<Flow, Failed> {
        let known = frame.variables.len();
        let declared = branch.pipe.declared.clone();
        let assigns = branch.pipe.assigns;
        let value = self.commands(&branch.pipe, frame, dot)?;
        let deps = self.heap.deps(&value);
        let items: Vec<(Value, Value)> = match &value.data {
            Data::Nil => Vec::new(),
            Data::List(id) => {
                let items = self.heap.items(*id);
                (0..).zip(items.iter()).map(|(at, item)| (Value::int(at), item.clone())).collect()
            }
            Data::Map(id) => {
                let entries = self.heap.entries(*id);
                entries.iter().map(|(key, item)| (Value::text(&**key), item.clone())).collect()
            }
            Data::Files(files) => files
                .iter()
                .map(|(name, bytes)| {
                    (Value::text(&**name), Value::text(String::from_utf8_lossy(bytes).as_ref()))
                })
                .collect(),
            Data::Int(count, _) => {
                let count = *count;
                self.charge(u64::try_from(count).unwrap_or_default(), 0)?;
                (0..count).map(|at| (Value::int(at), Value::int(at))).collect()
            }
            _ => {
                let error =
                    Failed::call("range", format!("cannot iterate over a {}", crate::value::kind_of(&value)));
                return Err(error.located(frame.origin.file, branch.pipe.span));
            }
        };
        let outer = self.scope;
        self.scope = self.heap.scope(outer, deps);
        let mut result = Ok(Flow::Next);
        if items.is_empty() {
            result = self.nodes(&branch.otherwise, frame, dot, out);
        }
        for (key, item) in items {
            self.charge(1, 0)?;
            let values = match declared.len() {
                0 => Vec::new(),
                1 => vec![item.clone()],
                _ => vec![key, item.clone()],
            };
            for (name, value) in declared.iter().zip(values) {
                if assigns {
                    assign(frame, name, value);
                } else {
                    frame.variables.push((Rc::clone(name), value));
                }
            }
            let flow = self.nodes(&branch.body, frame, &item, out);
            frame.variables.truncate(known);
            match flow {
                Ok(Flow::Break) => break,
                Ok(_) => {}
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.scope = outer;
        frame.variables.truncate(known);
        result
    }

    fn pipeline(&mut self, pipe: &Pipeline, frame: &mut Frame, dot: &Value) -> Result<Value, Failed> {
        let value = self.commands(pipe, frame, dot)?;
        for name in &pipe.declared {
            if pipe.assigns {
                // What decided that it is assigned is a part of it.
                let decided = self.heap.scopes.get(self.scope as usize).map_or(0, |(_, set)| *set);
                let deps = self.heap.union(value.deps, decided);
                assign(frame, name, Value { deps, ..value.clone() });
            } else {
                frame.variables.push((Rc::clone(name), value.clone()));
            }
        }
        Ok(value)
    }

    fn commands(&mut self, pipe: &Pipeline, frame: &mut Frame, dot: &Value) -> Result<Value, Failed> {
        // In a template of `tpl` the place is the action that runs it.
        let place = match frame.origin.by {
            Some((file, span, _)) => (file, span),
            None => (frame.origin.file, pipe.span),
        };
        let mut last: Option<Value> = None;
        for command in &pipe.commands {
            self.charge(1, 0)?;
            let value = self.command(command, last.take(), frame, dot, place);
            last = Some(value.map_err(|error| error.located(place.0, place.1))?);
        }
        Ok(last.unwrap_or(Value::NIL))
    }

    fn command(
        &mut self,
        command: &[Operand],
        last: Option<Value>,
        frame: &mut Frame,
        dot: &Value,
        place: (u32, Range),
    ) -> Result<Value, Failed> {
        let Some((head, rest)) = command.split_first() else { return Ok(Value::NIL) };
        match head {
            Operand::Name(name) => self.function(name, rest, last, frame, dot, place),
            Operand::Field(fields) => {
                let arguments = (rest, last);
                self.field_call(dot.clone(), fields, arguments, frame, dot, place)
            }
            Operand::Variable(name, fields) => {
                let value = lookup(frame, name);
                self.field_call(value, fields, (rest, last), frame, dot, place)
            }
            Operand::Paren(pipe, fields) => {
                let value = self.nested(pipe, frame, dot)?;
                self.field_call(value, fields, (rest, last), frame, dot, place)
            }
            other => {
                if !rest.is_empty() || last.is_some() {
                    return Err(Failed::call("call", "this is no function and takes no arguments"));
                }
                self.operand(other, frame, dot, place)
            }
        }
    }

    fn nested(&mut self, pipe: &Pipeline, frame: &mut Frame, dot: &Value) -> Result<Value, Failed> {
        self.charge(1, 0)?;
        self.enter()?;
        let value = self.pipeline(pipe, frame, dot);
        self.nesting -= 1;
        value
    }

    fn operand(
        &mut self,
        operand: &Operand,
        frame: &mut Frame,
        dot: &Value,
        place: (u32, Range),
    ) -> Result<Value, Failed> {
        Ok(match operand {
            Operand::Dot => dot.clone(),
            Operand::Nil => Value::NIL,
            Operand::Bool(value) => Value::bool(*value),
            Operand::Int(value) => Value::int(*value),
            Operand::Float(value) => Value::of(Data::Float(*value)),
            Operand::Str(text) => Value::text(&**text),
            Operand::Field(fields) => self.field_call(dot.clone(), fields, (&[], None), frame, dot, place)?,
            Operand::Variable(name, fields) => {
                let value = lookup(frame, name);
                self.field_call(value, fields, (&[], None), frame, dot, place)?
            }
            Operand::Paren(pipe, fields) => {
                let value = self.nested(pipe, frame, dot)?;
                self.field_call(value, fields, (&[], None), frame, dot, place)?
            }
            Operand::Name(name) => self.function(name, &[], None, frame, dot, place)?,
        })
    }

    fn function(
        &mut self,
        name: &str,
        operands: &[Operand],
        last: Option<Value>,
        frame: &mut Frame,
        dot: &Value,
        place: (u32, Range),
    ) -> Result<Value, Failed> {
        // The rest of `and` and `or` is only looked at if it matters.
        if matches!(name, "and" | "or") && !operands.is_empty() {
            let mut result = Value::NIL;
            let mut deps = 0;
            for (index, operand) in operands.iter().enumerate() {
                result = self.operand(operand, frame, dot, place)?;
                let own = self.heap.deps(&result);
                deps = self.heap.union(deps, own);
                let is_last = index + 1 == operands.len() && last.is_none();
                if !is_last && is_true(&self.heap, &result) == (name == "or") {
                    result.deps = deps;
                    return Ok(result);
                }
            }
            if let Some(last) = last {
                let own = self.heap.deps(&last);
                deps = self.heap.union(deps, own);
                result = last;
            }
            result.deps = deps;
            return Ok(result);
        }
        let mut arguments = Vec::with_capacity(operands.len() + 1);
        for operand in operands {
            arguments.push(self.operand(operand, frame, dot, place)?);
        }
        arguments.extend(last);
        self.charge(1, 0)?;
        functions::call(self, name, &arguments, place)
    }

    /// Follows fields; the last may be a method with arguments.
    fn field_call(
        &mut self,
        start: Value,
        fields: &[Rc<str>],
        (operands, last): (&[Operand], Option<Value>),
        frame: &mut Frame,
        dot: &Value,
        place: (u32, Range),
    ) -> Result<Value, Failed> {
        // A field of nothing at all is nothing; a field of a key that is not set is an error, as in Go.
        if start.is_nil() && !fields.is_empty() {
            if start.path > crate::value::ROOT {
                self.read.insert(start.path);
            }
            let path = fields.iter().fold(start.path, |path, field| self.heap.child(path, field));
            return Ok(Value { path, deps: start.deps, ..Value::NIL });
        }
        let mut value = start;
        let mut fields = fields.iter();
        while let Some(field) = fields.next() {
            let is_last = fields.len() == 0;
            if matches!(value.data, Data::Files(_) | Data::ApiVersions) {
                let mut arguments = Vec::new();
                if is_last {
                    for operand in operands {
                        arguments.push(self.operand(operand, frame, dot, place)?);
                    }
                    arguments.extend(last);
                    return functions::method(self, &value, field, &arguments);
                }
                value = functions::method(self, &value, field, &[])?;
                continue;
            }
            value = self.field(&value, field)?;
        }
        if !operands.is_empty() || last.is_some() {
            return Err(Failed::call("call", "a value that is no function has arguments"));
        }
        if value.path > crate::value::ROOT {
            self.read.insert(value.path);
        }
        Ok(value)
    }

    pub(crate) fn field(&mut self, value: &Value, field: &str) -> Result<Value, Failed> {
        match &value.data {
            Data::Map(id) => {
                let found = self.heap.entries(*id).get(field).cloned();
                let found =
                    found.unwrap_or_else(|| Value { path: self.heap.child(value.path, field), ..Value::NIL });
                Ok(found)
            }
            Data::Nil => {
                if value.path > crate::value::ROOT {
                    self.read.insert(value.path);
                }
                Err(TemplateErrorKind::NilField(field.to_owned()).into())
            }
            _ => Err(TemplateErrorKind::NoField {
                field: field.to_owned(),
                kind: crate::value::type_of(value),
            }
            .into()),
        }
    }

    /// Writes a value as Go's `print` does.
    fn print(&mut self, value: &Value, origin: &Origin, span: Range, out: &mut Out) -> Result<(), Failed> {
        let data = self.heap.deps(value);
        let source = self.source(origin, span, data);
        match &value.data {
            // Helm replaces `<no value>` by nothing.
            Data::Nil => {}
            Data::Str(text) => {
                self.charge(1 + text.marks.len() as u64, text.text.len())?;
                if text.marks.is_empty() {
                    out.push_str(&text.text, source);
                    return Ok(());
                }
                let mut begin = 0;
                for mark in text.marks.iter() {
                    let end = mark.end as usize;
                    if mark.source == 0 {
                        out.push_str(text.text.get(begin..end).unwrap_or_default(), source);
                    } else {
                        let known = self.heap.sources.get(mark.source as usize).copied().unwrap_or_default();
                        if known.file == NO_FILE {
                            // Values that a function wrote here: they get the place of the action.
                            let here = self.source(origin, span, known.data);
                            out.push_str(text.text.get(begin..end).unwrap_or_default(), here);
                        } else {
                            out.push(text, begin..end);
                        }
                    }
                    begin = end;
                }
            }
            _ => {
                let text = functions::print::display(self, value)?.replace("<no value>", "");
                self.charge(1, text.len())?;
                out.push_str(&text, source);
            }
        }
        Ok(())
    }

    pub(crate) fn map_value(&mut self, entries: Map) -> Value {
        self.heap.map(entries)
    }
}

fn lookup(frame: &Frame, name: &str) -> Value {
    frame
        .variables
        .iter()
        .rev()
        .find(|(known, _)| &**known == name)
        .map_or(Value::NIL, |(_, value)| value.clone())
}

fn assign(frame: &mut Frame, name: &str, value: Value) {
    if let Some((_, slot)) = frame.variables.iter_mut().rev().find(|(known, _)| &**known == name) {
        *slot = value;
    }
}
