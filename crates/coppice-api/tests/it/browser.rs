//! A browser at the pages for people.

use coppice_test_support::Answer;

use crate::http::Http;

/// Where it believes to be.
pub(crate) const HOST: (&str, &str) = ("host", "127.0.0.1:7070");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// A browser that keeps its cookies.
#[derive(Default)]
pub(crate) struct Browser {
    jar: Vec<(String, String)>,
}

impl Browser {
    pub(crate) fn cookies(&self) -> String {
        self.jar.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
    }

    fn keep(&mut self, answer: Answer) -> Answer {
        if let Some((name, value)) =
            answer.header("set-cookie").split(';').next().and_then(|set| set.split_once('='))
        {
            self.jar.retain(|(known, _)| known != name);
            self.jar.push((name.to_owned(), value.to_owned()));
        }
        answer
    }

    pub(crate) fn get(&mut self, http: &Http, path: &str) -> Answer {
        let answer = http.anonymous("GET", path, &[HOST, ("cookie", &self.cookies())]);
        self.keep(answer)
    }

    /// Sends a form whose fields come when something has been done meanwhile.
    pub(crate) fn post_slowly(
        &self,
        http: &Http,
        path: &str,
        fields: String,
        meanwhile: impl FnOnce(),
    ) -> Answer {
        http.slowly(("POST", path), &[HOST, FORM, ("cookie", &self.cookies())], fields, meanwhile)
    }

    /// What it keeps of who is signed in.
    pub(crate) fn session(&self) -> &str {
        let found = self.jar.iter().find(|(name, _)| name == "coppice-session");
        &found.expect("somebody is signed in").1
    }

    pub(crate) fn post(&mut self, http: &Http, path: &str, fields: &str) -> Answer {
        let answer = http.send_text("POST", path, &[HOST, FORM, ("cookie", &self.cookies())], fields);
        self.keep(answer)
    }
}
