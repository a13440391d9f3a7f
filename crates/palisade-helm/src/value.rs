//! The values that templates compute with, and the heap they live in.
//!
//! Lists and maps are numbers of a [`Heap`]: maps can change and contain themselves, as in Go, and are freed at once and without
//! recursion. A value has the paths of the chart's values that it was made of.

use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

use serde_json::Value as Json;

use crate::text::{PathId, ScopeId, SetId, Source, SourceId, Text};

/// The keys and values of a map.
pub(crate) type Map = BTreeMap<Rc<str>, Value>;

/// What a number is to `kindOf`: YAML's numbers are float64, as Helm reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntKind {
    Int,
    Int64,
    Yaml,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    Nil,
    Bool(bool),
    Int(i64, IntKind),
    Float(f64),
    Str(Text),
    List(u32),
    Map(u32),
    /// The files of a chart.
    Files(Rc<FileMap>),
    /// The versions that the API server serves.
    ApiVersions,
}

/// Files by their path in the chart.
pub(crate) type FileMap = BTreeMap<Rc<str>, Rc<[u8]>>;

/// A value with what it was made of.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) data: Data,
    /// The path in the values that it is, unchanged.
    pub(crate) path: PathId,
    /// The paths that went into it.
    pub(crate) deps: SetId,
}

impl Value {
    pub(crate) const NIL: Self = Self { data: Data::Nil, path: 0, deps: 0 };

    pub(crate) const fn of(data: Data) -> Self {
        Self { data, path: 0, deps: 0 }
    }

    pub(crate) fn text(text: impl Into<Text>) -> Self {
        Self::of(Data::Str(text.into()))
    }

    pub(crate) const fn bool(value: bool) -> Self {
        Self::of(Data::Bool(value))
    }

    pub(crate) const fn int(value: i64) -> Self {
        Self::of(Data::Int(value, IntKind::Int))
    }

    pub(crate) const fn int64(value: i64) -> Self {
        Self::of(Data::Int(value, IntKind::Int64))
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match &self.data {
            Data::Str(text) => Some(&text.text),
            _ => None,
        }
    }

    pub(crate) const fn is_nil(&self) -> bool {
        matches!(self.data, Data::Nil)
    }
}

/// Lists and maps, and the tables of paths, sets and sources.
#[derive(Debug)]
pub(crate) struct Heap {
    lists: Vec<Rc<[Value]>>,
    maps: Vec<Rc<Map>>,
    paths: Vec<(PathId, Rc<str>)>,
    path_ids: HashMap<(PathId, Rc<str>), PathId>,
    sets: Vec<Vec<PathId>>,
    set_ids: HashMap<Vec<PathId>, SetId>,
    pub(crate) sources: Vec<Source>,
    source_ids: HashMap<Source, SourceId>,
    /// Each with the scope around it.
    pub(crate) scopes: Vec<(ScopeId, SetId)>,
}

/// The path of the values themselves.
pub(crate) const ROOT: PathId = 1;

impl Heap {
    pub(crate) fn new() -> Self {
        Self {
            lists: Vec::new(),
            maps: Vec::new(),
            paths: vec![(0, "".into()), (0, "".into())],
            path_ids: HashMap::new(),
            sets: vec![Vec::new()],
            set_ids: HashMap::from([(Vec::new(), 0)]),
            sources: vec![Source { file: crate::text::NO_FILE, ..Source::default() }],
            source_ids: HashMap::new(),
            scopes: vec![(0, 0)],
        }
    }

    /// How much it holds.
    pub(crate) fn size(&self) -> u64 {
        (self.lists.len() + self.maps.len() + self.paths.len() + self.sources.len()) as u64
    }

    pub(crate) fn list(&mut self, items: Vec<Value>) -> Value {
        let id = number(self.lists.len());
        self.lists.push(items.into());
        Value::of(Data::List(id))
    }

    pub(crate) fn items(&self, id: u32) -> Rc<[Value]> {
        self.lists.get(id as usize).map_or_else(|| Rc::new([]) as Rc<[Value]>, Rc::clone)
    }

    pub(crate) fn map(&mut self, entries: Map) -> Value {
        let id = number(self.maps.len());
        self.maps.push(Rc::new(entries));
        Value::of(Data::Map(id))
    }

    pub(crate) fn entries(&self, id: u32) -> Rc<Map> {
        self.maps.get(id as usize).map_or_else(Rc::default, Rc::clone)
    }

    pub(crate) fn change(&mut self, id: u32, change: impl FnOnce(&mut Map)) {
        if let Some(map) = self.maps.get_mut(id as usize) {
            change(Rc::make_mut(map));
        }
    }

    /// The path of a child.
    pub(crate) fn child(&mut self, parent: PathId, key: &str) -> PathId {
        if parent == 0 {
            return 0;
        }
        let key: Rc<str> = key.into();
        if let Some(&known) = self.path_ids.get(&(parent, Rc::clone(&key))) {
            return known;
        }
        let id = number(self.paths.len());
        self.paths.push((parent, Rc::clone(&key)));
        self.path_ids.insert((parent, key), id);
        id
    }

    /// The keys that lead to a path; indices of lists are numbers in brackets.
    pub(crate) fn path(&self, mut id: PathId) -> Vec<String> {
        let mut keys = Vec::new();
        while id > ROOT {
            let Some((parent, key)) = self.paths.get(id as usize) else { break };
            keys.push(key.to_string());
            id = *parent;
        }
        keys.reverse();
        keys
    }

    pub(crate) fn paths_of(&self, set: SetId) -> &[PathId] {
        self.sets.get(set as usize).map_or(&[], Vec::as_slice)
    }

    fn set(&mut self, paths: Vec<PathId>) -> SetId {
        if let Some(&known) = self.set_ids.get(&paths) {
            return known;
        }
        let id = number(self.sets.len());
        self.sets.push(paths.clone());
        self.set_ids.insert(paths, id);
        id
    }

    /// The paths of both sets. Large sets say little, and are cut.
    pub(crate) fn union(&mut self, a: SetId, b: SetId) -> SetId {
        const LARGEST: usize = 24;
        if a == b || b == 0 {
            return a;
        }
        if a == 0 {
            return b;
        }
        let mut paths = self.paths_of(a).to_vec();
        for &path in self.paths_of(b) {
            if let Err(at) = paths.binary_search(&path) {
                paths.insert(at, path);
            }
        }
        paths.truncate(LARGEST);
        self.set(paths)
    }

    pub(crate) fn with_path(&mut self, set: SetId, path: PathId) -> SetId {
        if path <= ROOT {
            return set;
        }
        let single = self.set(vec![path]);
        self.union(single, set)
    }

    /// What a value is made of, itself included.
    pub(crate) fn deps(&mut self, value: &Value) -> SetId {
        self.with_path(value.deps, value.path)
    }

    /// What decides by a value: what it is made of, and for a text that templates wrote also the conditions in them.
    pub(crate) fn deciding(&mut self, value: &Value) -> SetId {
        const MOST_MARKS: usize = 16;
        let mut all = self.deps(value);
        if let Data::Str(text) = &value.data {
            for mark in text.marks.iter().take(MOST_MARKS) {
                let Some(source) = self.sources.get(mark.source as usize).copied() else { continue };
                let decided = self.scopes.get(source.scope as usize).map_or(0, |(_, set)| *set);
                all = self.union(all, source.data);
                all = self.union(all, decided);
            }
        }
        all
    }

    pub(crate) fn source(&mut self, source: Source) -> SourceId {
        if let Some(&known) = self.source_ids.get(&source) {
            return known;
        }
        let id = number(self.sources.len());
        self.sources.push(source);
        self.source_ids.insert(source, id);
        id
    }

    pub(crate) fn scope(&mut self, outer: ScopeId, set: SetId) -> ScopeId {
        if set == 0 {
            return outer;
        }
        if let Some(&(above, known)) = self.scopes.last()
            && above == outer
            && known == set
        {
            return number(self.scopes.len() - 1);
        }
        let id = number(self.scopes.len());
        self.scopes.push((outer, set));
        id
    }

    /// Values of a chart, each with its path. `global` are shared by all charts.
    pub(crate) fn values(&mut self, json: &Json, path: PathId) -> Value {
        let data = match json {
            Json::Null => Data::Nil,
            Json::Bool(value) => Data::Bool(*value),
            Json::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(value), _) => Data::Int(value, IntKind::Yaml),
                (None, value) => Data::Float(value.unwrap_or_default()),
            },
            Json::String(text) => Data::Str(text.as_str().into()),
            Json::Array(items) => {
                let items = items
                    .iter()
                    .enumerate()
                    .map(|(index, item)| {
                        let path = self.child(path, &format!("[{index}]"));
                        self.values(item, path)
                    })
                    .collect();
                self.list(items).data
            }
            Json::Object(entries) => {
                let map = entries
                    .iter()
                    .map(|(key, item)| {
                        let path = self.child(path, key);
                        (Rc::from(key.as_str()), self.values(item, path))
                    })
                    .collect();
                self.map(map).data
            }
        };
        Value { data, path, deps: 0 }
    }
}

fn number(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// The truth of a value in a condition.
pub(crate) fn is_true(heap: &Heap, value: &Value) -> bool {
    match &value.data {
        Data::Nil => false,
        Data::Bool(value) => *value,
        Data::Int(value, _) => *value != 0,
        Data::Float(value) => *value != 0.0,
        Data::Str(text) => !text.text.is_empty(),
        Data::List(id) => !heap.items(*id).is_empty(),
        Data::Map(id) => !heap.entries(*id).is_empty(),
        Data::Files(files) => !files.is_empty(),
        Data::ApiVersions => true,
    }
}

/// What Go calls the kind of a value.
pub(crate) const fn kind_of(value: &Value) -> &'static str {
    match &value.data {
        Data::Nil => "invalid",
        Data::Bool(_) => "bool",
        Data::Int(_, IntKind::Int) => "int",
        Data::Int(_, IntKind::Int64) => "int64",
        Data::Int(_, IntKind::Yaml) | Data::Float(_) => "float64",
        Data::Str(_) => "string",
        Data::List(_) | Data::ApiVersions => "slice",
        Data::Map(_) | Data::Files(_) => "map",
    }
}

/// What Go calls the type of a value.
pub(crate) const fn type_of(value: &Value) -> &'static str {
    match &value.data {
        Data::Nil => "<nil>",
        Data::List(_) => "[]interface {}",
        Data::Map(_) => "map[string]interface {}",
        Data::Files(_) => "engine.files",
        Data::ApiVersions => "chartutil.VersionSet",
        _ => kind_of(value),
    }
}
