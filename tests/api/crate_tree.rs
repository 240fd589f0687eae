//! The modules of a crate, public or not, and what a name means in one of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, Item, UseTree};

/// Where a module stands.
pub(crate) type ModulePath = Vec<String>;

/// All modules of a crate.
pub(crate) struct Tree {
    modules: BTreeMap<ModulePath, Module>,
}

/// One module.
pub(crate) struct Module {
    /// Without those of tests.
    pub(crate) items: Vec<Item>,
    /// What it brings into scope, by the name it has there.
    imports: Vec<(String, Import)>,
}

/// A name that another one stands for.
struct Import {
    path: Vec<String>,
    is_glob: bool,
}

/// What a path leads to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Found {
    /// An item of the crate: its module and its name there.
    Own(ModulePath, String),
    /// Something of another crate.
    Foreign(Vec<String>),
}

impl Tree {
    /// Reads a crate from its first file.
    pub(crate) fn read(file: &Path) -> Self {
        let mut tree = Self { modules: BTreeMap::new() };
        let folder = file.parent().expect("a folder").to_owned();
        tree.add_file(Vec::new(), file, &folder);
        tree
    }

    /// The same of a crate that stands in one text.
    pub(crate) fn of_text(text: &str) -> Self {
        let mut tree = Self { modules: BTreeMap::new() };
        let file = syn::parse_file(text).expect("Rust");
        tree.add(Vec::new(), file.items, Path::new("nowhere"));
        tree
    }

    fn add_file(&mut self, path: ModulePath, file: &Path, folder: &Path) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.add(path, parsed.items, folder);
    }

    fn add(&mut self, path: ModulePath, items: Vec<Item>, folder: &Path) {
        let mut items: Vec<Item> = items.into_iter().filter(|item| !is_of_tests(attributes(item))).collect();
        let mut imports = Vec::new();
        for item in &mut items {
            match item {
                Item::Mod(module) => {
                    let name = module.ident.to_string();
                    let inner = path.iter().cloned().chain([name.clone()]).collect();
                    match module.content.take() {
                        Some((_, items)) => self.add(inner, items, &folder.join(&name)),
                        None => {
                            let (file, folder) = file_of(folder, &name);
                            self.add_file(inner, &file, &folder);
                        }
                    }
                }
                Item::Use(using) => collect(&using.tree, Vec::new(), &mut imports),
                _ => {}
            }
        }
        self.modules.insert(path, Module { items, imports });
    }

    pub(crate) fn module(&self, path: &ModulePath) -> Option<&Module> {
        self.modules.get(path)
    }

    pub(crate) fn modules(&self) -> impl Iterator<Item = (&ModulePath, &Module)> {
        self.modules.iter()
    }

    /// What a path means that is written in a module.
    pub(crate) fn resolve(&self, at: &ModulePath, path: &[String]) -> Found {
        self.look_up(at, path, 8)
    }

    fn look_up(&self, at: &ModulePath, path: &[String], depth: usize) -> Found {
        let foreign = || Found::Foreign(path.to_vec());
        let Some((first, rest)) = path.split_first().filter(|_| depth > 0) else { return foreign() };
        match first.as_str() {
            "crate" => return self.look_up(&Vec::new(), rest, depth - 1),
            "self" => return self.look_up(at, rest, depth - 1),
            "super" => return self.look_up(&at[..at.len().saturating_sub(1)].to_vec(), rest, depth - 1),
            _ => {}
        }
        let inner: ModulePath = at.iter().cloned().chain([first.clone()]).collect();
        if self.modules.contains_key(&inner) {
            return match rest.is_empty() {
                true => Found::Own(at.clone(), first.clone()),
                false => self.look_up(&inner, rest, depth),
            };
        }
        let Some(module) = self.modules.get(at) else { return foreign() };
        if rest.is_empty() && module.items.iter().any(|item| name_of(item).is_some_and(|name| name == *first))
        {
            return Found::Own(at.clone(), first.clone());
        }
        for (_, import) in module.imports.iter().filter(|(name, _)| name == first) {
            let path: Vec<String> = import.path.iter().chain(rest).cloned().collect();
            // `use a;` of another crate must not lead to itself.
            if path != [first.clone()] {
                return self.look_up(at, &path, depth - 1);
            }
        }
        for (_, import) in module.imports.iter().filter(|(_, import)| import.is_glob) {
            let path: Vec<String> = import.path.iter().chain(path).cloned().collect();
            if let found @ Found::Own(..) = self.look_up(at, &path, depth - 1) {
                return found;
            }
        }
        foreign()
    }
}

/// The file of a module that is declared in a file whose own modules stand in `folder`.
fn file_of(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    let (plain, inner) = (folder.join(format!("{name}.rs")), folder.join(name));
    if plain.exists() { (plain, inner) } else { (inner.join("mod.rs"), inner) }
}

fn collect(tree: &UseTree, before: Vec<String>, into: &mut Vec<(String, Import)>) {
    let with = |name: &syn::Ident| before.iter().cloned().chain([name.to_string()]).collect::<Vec<_>>();
    match tree {
        UseTree::Path(path) => collect(&path.tree, with(&path.ident), into),
        UseTree::Group(group) => group.items.iter().for_each(|tree| collect(tree, before.clone(), into)),
        UseTree::Glob(_) => into.push(("*".to_owned(), Import { path: before, is_glob: true })),
        UseTree::Name(name) if name.ident == "self" => {
            let last = before.last().cloned().unwrap_or_default();
            into.push((last, Import { path: before, is_glob: false }));
        }
        UseTree::Name(name) => {
            into.push((name.ident.to_string(), Import { path: with(&name.ident), is_glob: false }));
        }
        UseTree::Rename(name) => {
            into.push((name.rename.to_string(), Import { path: with(&name.ident), is_glob: false }));
        }
    }
}

/// The names that a `use` makes: the name, the path that it stands for, whether it is `*`.
pub(crate) fn names_of_use(tree: &UseTree) -> Vec<(String, Vec<String>, bool)> {
    let mut imports = Vec::new();
    collect(tree, Vec::new(), &mut imports);
    imports.into_iter().map(|(name, import)| (name, import.path, import.is_glob)).collect()
}

/// The name of an item that has one.
pub(crate) fn name_of(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Mod(item) => item.ident.to_string(),
        Item::Static(item) => item.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        _ => return None,
    })
}

pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let list = attribute.path().is_ident("cfg").then(|| attribute.meta.require_list().ok()).flatten();
        list.is_some_and(|list| {
            let text = list.tokens.to_string();
            text == "test"
                || text.starts_with("all (test")
                || text.starts_with("all(test")
                || text == "doctest"
        })
    })
}
