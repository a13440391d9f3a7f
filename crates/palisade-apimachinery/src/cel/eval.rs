//! Runs an expression within a budget.
//!
//! The interpreter of the `cel` crate copies values and has no notion of cost, so only its parser is used. Here every step
//! is charged before it is made, and copies share their content.

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use std::collections::BTreeMap;

use super::budget::{Budget, Fault};
use super::composition::{Composition, VARIABLES};
use super::functions;
use super::value::{Key, Val};

type Outcome = Result<Val, Fault>;

/// A variable, and those that were known before it. An error is a value as long as nothing depends on it.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    name: &'a str,
    value: &'a Outcome,
    outer: Option<&'a Scope<'a>>,
}

impl<'a> Scope<'a> {
    fn find(scope: Option<&'a Self>, name: &str) -> Option<&'a Outcome> {
        let mut at = scope;
        while let Some(scope) = at {
            if scope.name == name {
                return Some(scope.value);
            }
            at = scope.outer;
        }
        None
    }
}

/// Runs an expression with variables.
pub(super) fn run(
    expression: &IdedExpr,
    variables: &[(&str, Val)],
    composition: Option<&Composition<'_>>,
    budget: &mut Budget,
) -> Outcome {
    let mut machine = Machine { variables, composition, budget };
    machine.eval(expression, None)
}

struct Machine<'m> {
    variables: &'m [(&'m str, Val)],
    composition: Option<&'m Composition<'m>>,
    budget: &'m mut Budget,
}

impl Machine<'_> {
    fn eval(&mut self, expression: &IdedExpr, scope: Option<&Scope<'_>>) -> Outcome {
        match &expression.expr {
            Expr::Ident(name) => self.ident(name, scope),
            Expr::Literal(literal) => self.literal(literal),
            Expr::Select(select) => {
                self.budget.charge(1)?;
                if let Some(composition) = self.composition
                    && matches!(&select.operand.expr, Expr::Ident(name) if name == VARIABLES)
                    && Scope::find(scope, VARIABLES).is_none()
                {
                    self.budget.charge(1)?;
                    return if select.test {
                        Ok(Val::Bool(composition.defines(&select.field)))
                    } else {
                        composition.value(&select.field)
                    };
                }
                let operand = self.eval(&select.operand, scope)?;
                if select.test { has(&operand, &select.field) } else { field(&operand, &select.field) }
            }
            Expr::Call(call) => self.call(call, scope),
            Expr::List(list) => self.list(&list.elements, &list.optional_indices, scope),
            Expr::Map(map) => self.map(&map.entries, scope),
            Expr::Comprehension(it) => self.comprehension(it, scope),
            Expr::Struct(structure) => self.object(&structure.entries, scope),
            Expr::Unspecified => Fault::error("unsupported expression"),
        }
    }

    fn ident(&mut self, name: &str, scope: Option<&Scope<'_>>) -> Outcome {
        self.budget.charge(1)?;
        if let Some(found) = Scope::find(scope, name) {
            return found.clone();
        }
        if let Some((_, value)) = self.variables.iter().find(|(known, _)| *known == name) {
            return Ok(value.clone());
        }
        match functions::type_named(name) {
            Some(known) => Ok(Val::Type(known)),
            None => Fault::error(format!("undeclared reference to '{name}'")),
        }
    }

    fn literal(&mut self, literal: &LiteralValue) -> Outcome {
        Ok(match literal {
            LiteralValue::Null => Val::Null,
            LiteralValue::Boolean(is) => Val::Bool(*is.inner()),
            LiteralValue::Int(number) => Val::Int(*number.inner()),
            LiteralValue::UInt(number) => Val::Uint(*number.inner()),
            LiteralValue::Double(number) => Val::Double(*number.inner()),
            LiteralValue::String(text) => {
                self.budget.allocate(text.inner().len())?;
                Val::text(text.inner())
            }
            LiteralValue::Bytes(bytes) => {
                self.budget.allocate(bytes.inner().len())?;
                Val::Bytes(bytes.inner().into())
            }
        })
    }

    fn list(&mut self, elements: &[IdedExpr], optional: &[usize], scope: Option<&Scope<'_>>) -> Outcome {
        self.budget.charge(10)?;
        self.budget.allocate_values(elements.len())?;
        let mut items = Vec::with_capacity(elements.len());
        for (at, element) in elements.iter().enumerate() {
            match self.eval(element, scope)? {
                Val::Optional(value) if optional.contains(&at) => items.extend(value.map(|v| (*v).clone())),
                value => items.push(value),
            }
        }
        Ok(Val::list(items))
    }

    fn map(&mut self, entries: &[cel::common::ast::IdedEntryExpr], scope: Option<&Scope<'_>>) -> Outcome {
        self.budget.charge(30)?;
        self.budget.allocate_values(entries.len().saturating_mul(2))?;
        let mut map = BTreeMap::new();
        for entry in entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return Fault::error("unsupported expression");
            };
            let key = self.eval(&entry.key, scope)?;
            let Some(key) = Key::of(&key) else { return Fault::error("unsupported key type") };
            match self.eval(&entry.value, scope)? {
                Val::Optional(value) if entry.optional => {
                    if let Some(value) = value {
                        map.insert(key, (*value).clone());
                    }
                }
                value => {
                    map.insert(key, value);
                }
            }
        }
        Ok(Val::map(map))
    }

    /// An object that an expression makes, as a map of its fields.
    fn object(&mut self, entries: &[cel::common::ast::IdedEntryExpr], scope: Option<&Scope<'_>>) -> Outcome {
        self.budget.charge(40)?;
        self.budget.allocate_values(entries.len().saturating_mul(2))?;
        let mut map = BTreeMap::new();
        for entry in entries {
            let EntryExpr::StructField(field) = &entry.expr else {
                return Fault::error("unsupported expression");
            };
            match self.eval(&field.value, scope)? {
                Val::Optional(value) if field.optional => {
                    if let Some(value) = value {
                        map.insert(Key::text(&field.field), (*value).clone());
                    }
                }
                value => {
                    map.insert(Key::text(&field.field), value);
                }
            }
        }
        Ok(Val::map(map))
    }

    /// A loop with two variables: index and element of a list, or key and value of a map.
    fn two_variable_loop(
        &mut self,
        call: &CallExpr,
        (first, second, parts): (&str, &str, &[IdedExpr]),
        scope: Option<&Scope<'_>>,
    ) -> Outcome {
        let Some(target) = call.target.as_deref() else { return Fault::overload() };
        let pairs: Vec<(Val, Val)> = match self.eval(target, scope)? {
            Val::List(items) => {
                self.budget.allocate_values(items.len())?;
                let index = |at: usize| Val::Int(i64::try_from(at).unwrap_or(i64::MAX));
                items.iter().enumerate().map(|(at, item)| (index(at), item.clone())).collect()
            }
            Val::Map(map) => {
                self.budget.allocate_values(map.len())?;
                map.iter().map(|(key, value)| (key.value(), value.clone())).collect()
            }
            _ => return Fault::overload(),
        };
        let name = call.func_name.as_str();
        let (mut list, mut map, mut found) = (Vec::new(), BTreeMap::new(), 0_usize);
        let mut failed = None;
        for (key, value) in pairs {
            self.budget.charge(1)?;
            let (key, value) = (Ok(key), Ok(value));
            let outer = Scope { name: first, value: &key, outer: scope };
            let inner = Scope { name: second, value: &value, outer: Some(&outer) };
            let (condition, result) = match parts {
                [condition, result] => (Some(condition), result),
                [result] => (None, result),
                _ => return Fault::overload(),
            };
            if let Some(condition) = condition {
                match self.eval(condition, Some(&inner))? {
                    Val::Bool(true) => {}
                    Val::Bool(false) => continue,
                    _ => return Fault::overload(),
                }
            }
            let outcome = self.eval(result, Some(&inner));
            match (name, outcome) {
                (_, Err(Fault::Exhausted)) => return Err(Fault::Exhausted),
                ("transformList", outcome) => {
                    self.budget.allocate_values(1)?;
                    list.push(outcome?);
                }
                ("transformMap", outcome) => {
                    self.budget.allocate_values(2)?;
                    let Some(key) = key.as_ref().ok().and_then(Key::of) else { return Fault::overload() };
                    map.insert(key, outcome?);
                }
                ("all", Ok(Val::Bool(false))) => return Ok(Val::Bool(false)),
                ("exists", Ok(Val::Bool(true))) => return Ok(Val::Bool(true)),
                (_, Ok(Val::Bool(is))) => found += usize::from(is),
                // An error counts only if no other element decides.
                ("all" | "exists", Err(fault)) => failed = Some(fault),
                (_, Err(fault)) => return Err(fault),
                _ => return Fault::overload(),
            }
        }
        match (name, failed) {
            (_, Some(fault)) => Err(fault),
            ("transformList", None) => Ok(Val::list(list)),
            ("transformMap", None) => Ok(Val::map(map)),
            ("all", None) => Ok(Val::Bool(true)),
            ("exists", None) => Ok(Val::Bool(false)),
            (_, None) => Ok(Val::Bool(found == 1)),
        }
    }

    fn call(&mut self, call: &CallExpr, scope: Option<&Scope<'_>>) -> Outcome {
        self.budget.charge(1)?;
        if let Some(parts) = two_variables(call) {
            return self.two_variable_loop(call, parts, scope);
        }
        let name = call.func_name.as_str();
        match (name, call.args.as_slice()) {
            (operators::LOGICAL_AND, [left, right]) => self.logical(left, right, false, scope),
            (operators::LOGICAL_OR, [left, right]) => self.logical(left, right, true, scope),
            (operators::CONDITIONAL, [condition, yes, no]) => match self.eval(condition, scope)? {
                Val::Bool(true) => self.eval(yes, scope),
                Val::Bool(false) => self.eval(no, scope),
                _ => Fault::overload(),
            },
            (operators::NOT_STRICTLY_FALSE, [inner]) => match self.eval(inner, scope) {
                Err(Fault::Exhausted) => Err(Fault::Exhausted),
                Ok(Val::Bool(false)) => Ok(Val::Bool(false)),
                _ => Ok(Val::Bool(true)),
            },
            (operators::OPT_SELECT, [operand, name]) => {
                let operand = self.eval(operand, scope)?;
                let name = self.eval(name, scope)?;
                optional_at(operand, &name)
            }
            (operators::OPT_INDEX, [operand, at]) => {
                let operand = self.eval(operand, scope)?;
                let at = self.eval(at, scope)?;
                optional_at(operand, &at)
            }
            ("or" | "orValue", [other]) if call.target.is_some() => {
                let Some(target) = &call.target else { return Fault::overload() };
                match self.eval(target, scope)? {
                    Val::Optional(Some(value)) if name == "orValue" => Ok((*value).clone()),
                    found @ Val::Optional(Some(_)) => Ok(found),
                    Val::Optional(None) => self.eval(other, scope),
                    _ => Fault::overload(),
                }
            }
            _ => self.function(call, scope),
        }
    }

    fn function(&mut self, call: &CallExpr, scope: Option<&Scope<'_>>) -> Outcome {
        let name = call.func_name.as_str();
        let mut values = Vec::with_capacity(call.args.len() + 1);
        let mut qualified = None;
        if let Some(target) = &call.target {
            match &target.expr {
                Expr::Ident(space) if functions::is_namespace(space) && !self.declares(space, scope) => {
                    qualified = Some(format!("{space}.{name}"));
                }
                _ => values.push(self.eval(target, scope)?),
            }
        }
        for argument in &call.args {
            values.push(self.eval(argument, scope)?);
        }
        let is_member = call.target.is_some() && qualified.is_none();
        functions::call(qualified.as_deref().unwrap_or(name), is_member, &values, self.budget)
    }

    fn declares(&self, name: &str, scope: Option<&Scope<'_>>) -> bool {
        Scope::find(scope, name).is_some() || self.variables.iter().any(|(known, _)| *known == name)
    }

    /// `&&` and `||`: the side that decides wins over an error on the other one.
    fn logical(
        &mut self,
        left: &IdedExpr,
        right: &IdedExpr,
        decides: bool,
        scope: Option<&Scope<'_>>,
    ) -> Outcome {
        let left = match self.eval(left, scope) {
            Ok(Val::Bool(is)) if is == decides => return Ok(Val::Bool(decides)),
            Ok(Val::Bool(_)) => None,
            Ok(_) => Some(Fault::Error("no such overload".to_owned())),
            Err(Fault::Exhausted) => return Err(Fault::Exhausted),
            Err(error) => Some(error),
        };
        match (self.eval(right, scope)?, left) {
            (Val::Bool(is), _) if is == decides => Ok(Val::Bool(decides)),
            (_, Some(error)) => Err(error),
            (Val::Bool(_), None) => Ok(Val::Bool(!decides)),
            _ => Fault::overload(),
        }
    }

    fn comprehension(&mut self, it: &ComprehensionExpr, scope: Option<&Scope<'_>>) -> Outcome {
        let range = self.eval(&it.iter_range, scope)?;
        let mut accumulated = self.accumulator(&it.accu_init, scope)?;
        // `map` and `filter` append to a list: in place, or every step would copy it.
        let mut appended = match &accumulated {
            Ok(Val::List(items)) if items.is_empty() && appends(&it.loop_step, &it.accu_var) => {
                Some(Vec::new())
            }
            _ => None,
        };
        let pairs: Vec<(Val, Val)> = match &range {
            Val::List(items) => {
                self.budget.allocate_values(items.len())?;
                let index = |at: usize| Val::Int(i64::try_from(at).unwrap_or(i64::MAX));
                items.iter().enumerate().map(|(at, item)| (index(at), item.clone())).collect()
            }
            Val::Map(map) => {
                self.budget.allocate_values(map.len())?;
                map.iter().map(|(key, value)| (key.value(), value.clone())).collect()
            }
            _ => return Fault::overload(),
        };
        let over_map = matches!(range, Val::Map(_));
        for (first, second) in pairs {
            self.budget.charge(1)?;
            let (var, var2) = match &it.iter_var2 {
                Some(second_name) => {
                    ((it.iter_var.as_str(), Ok(first)), Some((second_name.as_str(), Ok(second))))
                }
                None => ((it.iter_var.as_str(), Ok(if over_map { first } else { second })), None),
            };
            let accu = Scope { name: &it.accu_var, value: &accumulated, outer: scope };
            let inner = Scope { name: var.0, value: &var.1, outer: Some(&accu) };
            let inner2 = var2.as_ref().map(|(name, value)| Scope { name, value, outer: Some(&inner) });
            let inner = inner2.as_ref().unwrap_or(&inner);
            if let Some(items) = &mut appended {
                self.append(&it.loop_step, items, inner)?;
                continue;
            }
            match self.eval(&it.loop_cond, Some(inner))? {
                Val::Bool(true) => {}
                _ => break,
            }
            accumulated = self.accumulator(&it.loop_step, Some(inner))?;
        }
        if let Some(items) = appended {
            accumulated = Ok(Val::list(items));
        }
        let last = Scope { name: &it.accu_var, value: &accumulated, outer: scope };
        self.eval(&it.result, Some(&last))
    }

    /// A value or an error that the rest of the loop may still make irrelevant.
    fn accumulator(&mut self, expression: &IdedExpr, scope: Option<&Scope<'_>>) -> Result<Outcome, Fault> {
        match self.eval(expression, scope) {
            Err(Fault::Exhausted) => Err(Fault::Exhausted),
            outcome => Ok(outcome),
        }
    }

    /// One step of `map` or `filter`.
    fn append(&mut self, step: &IdedExpr, items: &mut Vec<Val>, scope: &Scope<'_>) -> Result<(), Fault> {
        let Expr::Call(call) = &step.expr else { return Fault::overload() };
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::CONDITIONAL, [condition, then, _]) => match self.eval(condition, Some(scope))? {
                Val::Bool(true) => self.append(then, items, scope),
                Val::Bool(false) => Ok(()),
                _ => Fault::overload(),
            },
            (operators::ADD, [_, added]) => {
                let Expr::List(list) = &added.expr else { return Fault::overload() };
                self.budget.charge(1)?;
                self.budget.allocate_values(list.elements.len())?;
                for element in &list.elements {
                    let value = self.eval(element, Some(scope))?;
                    items.push(value);
                }
                Ok(())
            }
            _ => Fault::overload(),
        }
    }
}

/// The variables and the rest of a loop with two variables, which the parser takes for a plain call.
pub(super) fn two_variables(call: &CallExpr) -> Option<(&str, &str, &[IdedExpr])> {
    let parts = match call.func_name.as_str() {
        "all" | "exists" | "existsOne" => 1..=1,
        "transformList" | "transformMap" => 1..=2,
        _ => return None,
    };
    match call.args.as_slice() {
        [first, second, rest @ ..] if call.target.is_some() && parts.contains(&rest.len()) => {
            match (&first.expr, &second.expr) {
                (Expr::Ident(first), Expr::Ident(second)) => Some((first, second, rest)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Whether a step is `accumulator + [...]`, or that under a condition.
fn appends(step: &IdedExpr, accumulator: &str) -> bool {
    let is_accumulator = |e: &IdedExpr| matches!(&e.expr, Expr::Ident(name) if name == accumulator);
    let Expr::Call(call) = &step.expr else { return false };
    match (call.func_name.as_str(), call.args.as_slice()) {
        (operators::ADD, [left, right]) => {
            let plain = matches!(&right.expr, Expr::List(list) if list.optional_indices.is_empty());
            accumulator.starts_with('@') && is_accumulator(left) && plain
        }
        (operators::CONDITIONAL, [_, then, otherwise]) => {
            appends(then, accumulator) && is_accumulator(otherwise)
        }
        _ => false,
    }
}

fn field(operand: &Val, name: &str) -> Outcome {
    match operand {
        Val::Map(map) => match map.get(&Key::text(name)) {
            Some(value) => Ok(value.clone()),
            None => Fault::error(format!("no such key: {name}")),
        },
        Val::Optional(None) => Ok(Val::Optional(None)),
        Val::Optional(Some(inner)) => optional_at((**inner).clone(), &Val::text(name)),
        Val::Authorizer(value) => value.field(name),
        _ => Fault::overload(),
    }
}

fn has(operand: &Val, name: &str) -> Outcome {
    match operand {
        Val::Map(map) => Ok(Val::Bool(map.contains_key(&Key::text(name)))),
        Val::Optional(None) => Ok(Val::Bool(false)),
        Val::Optional(Some(inner)) => has(inner, name),
        _ => Fault::overload(),
    }
}

/// The element, if it is there, as an optional value.
fn optional_at(operand: Val, at: &Val) -> Outcome {
    let operand = match operand {
        Val::Optional(None) => return Ok(Val::Optional(None)),
        Val::Optional(Some(inner)) => (*inner).clone(),
        other => other,
    };
    match (&operand, at) {
        (Val::Map(map), at) => Ok(Val::optional(Key::of(at).and_then(|key| map.get(&key).cloned()))),
        (Val::List(items), Val::Int(at)) => {
            Ok(Val::optional(usize::try_from(*at).ok().and_then(|at| items.get(at).cloned())))
        }
        _ => Fault::overload(),
    }
}

/// The element at an index or key.
pub(super) fn element(operand: &Val, at: &Val) -> Outcome {
    match (operand, at) {
        (Val::Map(map), at) => match Key::of(at).and_then(|key| map.get(&key)) {
            Some(value) => Ok(value.clone()),
            None => Fault::error(format!("no such key: {}", functions::shown(at))),
        },
        (Val::List(items), at) => match Key::of(at) {
            Some(Key::Int(at)) => match usize::try_from(at).ok().and_then(|at| items.get(at)) {
                Some(value) => Ok(value.clone()),
                None => Fault::error(format!("index out of bounds: {at}")),
            },
            _ => Fault::overload(),
        },
        (Val::Optional(_), at) => optional_at(operand.clone(), at),
        _ => Fault::overload(),
    }
}
