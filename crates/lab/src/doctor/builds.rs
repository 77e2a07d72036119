//! What systems need and no package brings, and the Go tool chain that makes it.

use super::{Check, good, poor};
use crate::causes::in_full;
use crate::inputs::build::Build;
use crate::inputs::catalog::{Catalog, CatalogError, Kind};
use crate::system::builds;
use crate::system::go::{self, GoError, Release, ToolChain};

/// Whether the builds can be made here, and each that cannot be made anywhere.
pub(super) fn checks(catalog: &Catalog) -> Vec<Check> {
    let all = catalog.names(Kind::Build).into_iter().map(|name| catalog.build(&name));
    let (sound, wrong): (Vec<_>, Vec<_>) = all.partition(Result::is_ok);
    let sound: Vec<Build> = sound.into_iter().flatten().collect();
    let wrong = wrong.into_iter().filter_map(Result::err);
    [check(&sound)].into_iter().chain(wrong.map(|error| tell_wrong(&error))).collect()
}

fn tell_wrong(error: &CatalogError) -> Check {
    poor(NAME, in_full(error), "mend this file: until then the systems that need it are left out")
}

/// Where all of them are made already, it is all the same whether they can be.
fn check(all: &[Build]) -> Check {
    let needed = all.iter().filter_map(go::needed).max();
    let are_made = all.iter().all(|build| builds::find(build).is_some());
    judge(go::here(), needed, are_made)
}

fn judge(here: Result<&ToolChain, GoError>, needed: Option<Release>, are_made: bool) -> Check {
    match here.and_then(|here| here.suffices(needed).map(|()| here)) {
        Ok(here) => {
            let needs = needed.map_or_else(String::new, |needed| format!("; needed: {needed}"));
            let fetches = if here.has_to_fetch(needed) { ", which it has to fetch" } else { "" };
            good(NAME, format!("{here}{needs}{fetches}"))
        }
        Err(lack) if are_made => {
            good(NAME, format!("{}; what it would build is there already", in_full(&lack)))
        }
        Err(lack) => poor(NAME, in_full(&lack), &go::mend(needed)),
    }
}

const NAME: &str = "builds";

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn a_go_that_is_missing_or_old_is_told_unless_all_is_built() {
        let tool_chain = |version: &str, switching: &str| {
            let settings = format!(r#"{{"GOTOOLCHAIN": "{switching}"}}"#);
            ToolChain::of(&format!("go version go{version} linux/amd64"), &settings).unwrap()
        };
        let needed = Release::parse("1.25");
        let old = judge(Ok(&tool_chain("1.19.8", "")), needed, false);
        assert_eq!(old.state, State::Poor);
        assert_eq!(old.found, "Go 1.19.8 is here, and Go 1.25 or newer is needed");
        assert_eq!(
            old.mend.as_deref(),
            Some("install Go 1.25 or newer, and put it first on the PATH")
        );
        let absent = judge(Err(GoError::Absent), needed, false);
        assert_eq!((absent.state, absent.found.as_str()), (State::Poor, "there is no Go here"));
        let built = judge(Err(GoError::Absent), needed, true);
        assert_eq!(built.state, State::Good);
        assert_eq!(built.found, "there is no Go here; what it would build is there already");
        let found = |here: &ToolChain| judge(Ok(here), needed, false).found;
        assert_eq!(found(&tool_chain("1.26.8", "local")), "Go 1.26.8; needed: 1.25");
        assert_eq!(
            found(&tool_chain("1.22", "auto")),
            "Go 1.22; needed: 1.25, which it has to fetch"
        );
    }
}
