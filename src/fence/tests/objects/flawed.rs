//! The negative controls: guards that people write in object stores, each found by the rule that names it.

use crate::moto::wait;
use crate::subject::{Kind, ObjectHandle, ObjectSubject, Objects};
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use ringfence_core::ids::{ClusterId, Epoch, Scope};
use ringfence_fence::conformance::{Crash, Handle, Outcome, Rule, Store, Subject, run_rule};
use ringfence_fence::object::EpochFolders;
use ringfence_fence::{Fence, FenceError, Fenced, FencingToken};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
enum Guard {
    /// No fence: a plain put.
    None,
    /// The sound check, and then a plain put.
    CheckThenPut,
    /// The epoch in an object of its own, replaced without a condition.
    EpochObject,
    /// A folder for each epoch, and a reader of the newest.
    Folders,
}

struct Flawed(Guard);

struct FlawedStore(Guard, Objects);

struct FlawedHandle {
    guard: Guard,
    store: Arc<dyn ObjectStore>,
    sound: ObjectHandle,
    folders: EpochFolders,
}

impl Subject for Flawed {
    type Store = FlawedStore;

    fn fresh(&self, cluster: &ClusterId) -> Result<FlawedStore, FenceError> {
        Ok(FlawedStore(self.0, ObjectSubject(Kind::Memory).fresh(cluster)?))
    }
}

impl Store for FlawedStore {
    type Handle = FlawedHandle;

    fn open(&self) -> Result<FlawedHandle, FenceError> {
        let (sound, store) = (self.1.open()?, Arc::clone(&self.1.store));
        let folders = EpochFolders::new(Arc::clone(&store), "folders", sound.fence.cluster())?;
        Ok(FlawedHandle { guard: self.0, store, sound, folders })
    }

    fn crash(&mut self) -> Result<Crash, FenceError> {
        unreachable!("no rule that crashes is run")
    }
}

impl FlawedHandle {
    fn put(&self, path: &str, text: &str) {
        let options = PutOptions { mode: PutMode::Overwrite, ..PutOptions::default() };
        wait(self.store.put_opts(&path.into(), text.to_owned().into(), options)).unwrap();
    }

    fn seen(&self, scope: &Scope) -> Option<Epoch> {
        let got = wait(self.store.get(&format!("epochs/{scope}").into())).ok()?;
        let text = wait(got.bytes()).unwrap();
        Epoch::new(String::from_utf8(text.to_vec()).unwrap().parse().unwrap()).ok()
    }

    fn look(&self, token: &FencingToken) -> Result<(), FenceError> {
        match self.seen(token.scope()).filter(|seen| *seen > token.epoch()) {
            Some(seen) => Err(Fenced::new(token.clone(), seen).into()),
            None => Ok(()),
        }
    }
}

impl Handle for FlawedHandle {
    fn raise(&mut self, token: &FencingToken) -> Result<(), FenceError> {
        match self.guard {
            Guard::None => Ok(()),
            Guard::CheckThenPut => self.sound.raise(token),
            Guard::EpochObject => {
                self.look(token)?;
                self.put(&format!("epochs/{}", token.scope()), &token.epoch().get().to_string());
                Ok(())
            }
            Guard::Folders => wait(self.folders.raise(token)),
        }
    }

    fn write(
        &mut self,
        tokens: &[FencingToken],
        pairs: &[(&str, &str)],
        paused: &mut dyn FnMut(),
    ) -> Result<(), FenceError> {
        match self.guard {
            Guard::None => {}
            Guard::CheckThenPut => wait(self.sound.fence.check(tokens))?,
            Guard::EpochObject => tokens.iter().try_for_each(|token| self.look(token))?,
            Guard::Folders => {
                paused();
                for (key, text) in pairs {
                    wait(self.folders.put(&tokens[0], key, text.to_string().into()))?;
                }
                return Ok(());
            }
        }
        paused();
        pairs.iter().for_each(|(key, text)| self.put(&format!("plain/{key}"), text));
        Ok(())
    }

    fn data(&mut self) -> Result<BTreeMap<String, String>, FenceError> {
        use futures_util::TryStreamExt;
        let scope: Scope = "orders/1".parse().unwrap();
        if matches!(self.guard, Guard::Folders) {
            // All epochs, the newest on top: as whoever carries the older data over.
            let mut all = BTreeMap::new();
            for epoch in wait(self.folders.epochs(&scope))? {
                for key in wait(self.folders.keys(&scope, epoch))? {
                    let content = wait(self.folders.get(&scope, epoch, &key))?.unwrap();
                    all.insert(key, String::from_utf8(content.to_vec()).unwrap());
                }
            }
            return Ok(all);
        }
        let list = wait(self.store.list(Some(&"plain".into())).try_collect::<Vec<_>>()).unwrap();
        Ok(list
            .into_iter()
            .map(|meta| {
                let content =
                    wait(async { self.store.get(&meta.location).await.unwrap().bytes().await }).unwrap();
                let key = meta.location.filename().unwrap().to_owned();
                (key, String::from_utf8(content.to_vec()).unwrap())
            })
            .collect())
    }

    fn highest(&mut self, scope: &Scope) -> Result<Option<Epoch>, FenceError> {
        match self.guard {
            Guard::None => Ok(None),
            Guard::CheckThenPut => self.sound.highest(scope),
            Guard::EpochObject => Ok(self.seen(scope)),
            Guard::Folders => wait(self.folders.highest(scope)),
        }
    }
}

#[test]
fn t57_t01_t03_guards_that_leave_a_gap_are_found() {
    for (guard, rule) in [
        (Guard::None, Rule::OlderRefused),
        (Guard::None, Rule::RaiseFences),
        (Guard::CheckThenPut, Rule::OneStep),
        (Guard::EpochObject, Rule::OneStep),
        (Guard::EpochObject, Rule::NeverRaisedRefused),
        // What a folder for each epoch does not give; it is advisory, and says so.
        (Guard::Folders, Rule::OlderRefused),
        (Guard::Folders, Rule::RaiseFences),
        (Guard::Folders, Rule::OneStep),
    ] {
        let outcome = run_rule(&Flawed(guard), rule);
        assert!(matches!(outcome, Outcome::Broken(_)), "{guard:?} was not found by \"{rule}\": {outcome:?}");
    }
    // And they look right where no gap is tried.
    for (guard, rule) in [
        (Guard::CheckThenPut, Rule::OlderRefused),
        (Guard::CheckThenPut, Rule::RaiseFences),
        (Guard::EpochObject, Rule::OlderRefused),
        (Guard::EpochObject, Rule::RaiseFences),
        (Guard::Folders, Rule::EqualAccepted),
    ] {
        assert_eq!(run_rule(&Flawed(guard), rule), Outcome::Held, "{guard:?}: {rule}");
    }
}
