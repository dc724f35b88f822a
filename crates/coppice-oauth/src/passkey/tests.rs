//! With a device of our own, by the letter of Web Authentication, level 3.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::json;

use super::*;

const URL: &str = "https://db.example.com";
const ID: &[u8] = b"sixteen bytes id";
/// Somebody is there, and showed the device who they are.
const PRESENT: u8 = 1;
const VERIFIED: u8 = 4;
const HAS_KEY: u8 = 0x40;

type Change = fn(&mut Device);

struct Device {
    key: EcdsaKeyPair,
    origin: &'static str,
    site: &'static str,
    flags: u8,
    count: u32,
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    digest::digest(&digest::SHA256, bytes).as_ref().to_vec()
}

impl Device {
    fn new() -> Self {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect("a key");
        Self { key, origin: URL, site: "db.example.com", flags: PRESENT | VERIFIED, count: 0 }
    }

    fn client_data(&self, kind: &str, options: &Value) -> Vec<u8> {
        let data = json!({
            "type": kind, "challenge": options["challenge"], "origin": self.origin, "crossOrigin": false
        });
        data.to_string().into_bytes()
    }

    fn data(&mut self, flags: u8) -> Vec<u8> {
        self.count += 1;
        [&sha256(self.site.as_bytes())[..], &[self.flags | flags], &self.count.to_be_bytes()].concat()
    }

    fn makes(&mut self, options: &Value) -> String {
        let point = self.key.public_key().as_ref();
        let (x, y) = (&point[1..33], &point[33..65]);
        let key = [b"\xa5\x01\x02\x03\x26\x20\x01\x21\x58\x20", x, b"\x22\x58\x20", y].concat();
        let length = u16::try_from(ID.len()).expect("short").to_be_bytes();
        let data = [&self.data(HAS_KEY)[..], &[0; 16], &length, ID, &key].concat();
        let size = u16::try_from(data.len()).expect("short").to_be_bytes();
        let head = b"\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x59";
        let object = [head, &size[..], &data].concat();
        let answer = json!({
            "id": BASE64.encode(ID), "rawId": BASE64.encode(ID), "type": "public-key",
            "response": {
                "attestationObject": BASE64.encode(object),
                "clientDataJSON": BASE64.encode(self.client_data("webauthn.create", options)),
                "transports": ["internal"]
            },
            "clientExtensionResults": { "credProps": { "rk": false } }
        });
        answer.to_string()
    }

    fn signs(&mut self, options: &Value) -> String {
        let client_data = self.client_data("webauthn.get", options);
        let data = self.data(0);
        let message = [&data[..], &sha256(&client_data)].concat();
        let signature = self.key.sign(&SystemRandom::new(), &message).expect("a signature");
        let answer = json!({
            "id": BASE64.encode(ID), "rawId": BASE64.encode(ID), "type": "public-key",
            "response": {
                "authenticatorData": BASE64.encode(data),
                "clientDataJSON": BASE64.encode(client_data),
                "signature": BASE64.encode(signature.as_ref()),
                "userHandle": null
            },
            "clientExtensionResults": {}
        });
        answer.to_string()
    }
}

fn site() -> Site {
    Site::at(URL).expect("a site")
}

fn enrolled() -> (Device, Passkey) {
    let mut device = Device::new();
    let asked = site().ask_for_new("usr_1", "ada@example.com", &[]).expect("a question");
    let passkey = site().new_passkey(asked.kept, &device.makes(&asked.options)).expect("a passkey");
    (device, passkey)
}

#[test]
fn browsers_have_passkeys_for_names_with_tls_and_for_the_machine_itself() {
    for url in [
        URL,
        "https://db.example.com:8443/coppice",
        "http://localhost:4000",
        "http://db.localhost",
        "https://localhost",
    ] {
        assert!(Site::at(url).is_some(), "{url}");
    }
    for url in [
        "http://db.example.com",
        "http://127.0.0.1:4000",
        "https://127.0.0.1",
        "https://[::1]",
        "nonsense",
        "",
    ] {
        assert!(Site::at(url).is_none(), "{url}");
    }
}

#[test]
fn a_passkey_signs_for_who_has_it() {
    let (mut device, passkey) = enrolled();
    assert_eq!(passkey.id, BASE64.encode(ID));
    let asked = site().ask_to_sign(vec![passkey.clone()]).expect("a question");
    assert_eq!(asked.options["rpId"], "db.example.com");
    assert_eq!(asked.options["userVerification"], "required");
    let signed = site().signed(asked.kept, &device.signs(&asked.options)).expect("a signature");
    assert_eq!(signed.before, passkey);
    assert_ne!(signed.after, passkey.credential, "it counts");
    // Who has one is not asked for the same again, and devices are told no address but the account's.
    let asked = site().ask_for_new("usr_1", "ada@example.com", &[passkey]).expect("a question");
    assert_eq!(asked.options["excludeCredentials"][0]["id"], BASE64.encode(ID));
    assert_eq!(asked.options["rp"], json!({ "name": "Coppice", "id": "db.example.com" }));
    let handle = asked.options["user"]["id"].as_str().expect("a handle");
    assert!(!handle.contains("usr_1") && handle.len() == 22, "{handle}");
}

#[test]
fn an_answer_to_another_question_or_from_another_site_is_none() {
    let (_, passkey) = enrolled();
    let ask = || site().ask_to_sign(vec![passkey.clone()]).expect("a question");
    let told = |change: Change| {
        let (mut device, passkey) = enrolled();
        change(&mut device);
        let asked = site().ask_to_sign(vec![passkey]).expect("a question");
        site().signed(asked.kept, &device.signs(&asked.options)).map_err(|refused| refused.to_string())
    };
    assert!(told(|_| ()).is_ok());
    let changes: [(&str, Change); 6] = [
        ("another origin", |device| device.origin = "https://evil.example.com"),
        ("another port", |device| device.origin = "https://db.example.com:8443"),
        ("without TLS", |device| device.origin = "http://db.example.com"),
        ("another site", |device| device.site = "example.com"),
        ("not unlocked", |device| device.flags = PRESENT),
        ("another key", |device| device.key = Device::new().key),
    ];
    for (what, change) in changes {
        assert!(told(change).is_err(), "{what}");
    }
    // Said earlier, to another question.
    let (mut device, passkey) = enrolled();
    let asked = site().ask_to_sign(vec![passkey.clone()]).expect("a question");
    let answer = device.signs(&asked.options);
    let later = site().ask_to_sign(vec![passkey]).expect("a question");
    assert!(site().signed(later.kept.clone(), &answer).is_err(), "a replay");
    assert!(site().signed(asked.kept, &answer).is_ok());
    // A question of one kind has no answer of the other.
    assert!(site().new_passkey(later.kept, &device.makes(&later.options)).is_err());
    let new = site().ask_for_new("usr_1", "ada@example.com", &[]).expect("a question");
    assert!(site().signed(new.kept, &device.signs(&new.options)).is_err());
    for nonsense in ["", "{}", "null", "[]"] {
        assert!(site().signed(ask().kept, nonsense).is_err(), "{nonsense}");
    }
}

#[test]
fn a_copy_of_a_passkey_is_noticed_by_its_count() {
    let (mut device, passkey) = enrolled();
    for _ in 0..3 {
        device.data(0);
    }
    let asked = site().ask_to_sign(vec![passkey.clone()]).expect("a question");
    let signed = site().signed(asked.kept, &device.signs(&asked.options)).expect("a signature");
    let now = Passkey { credential: signed.after, ..passkey };
    // The copy was made before, and counts on from there.
    device.count = 1;
    let asked = site().ask_to_sign(vec![now]).expect("a question");
    assert!(site().signed(asked.kept, &device.signs(&asked.options)).is_err());
}

#[test]
fn a_passkey_is_made_for_this_site_by_who_unlocks_the_device() {
    let changes: [Change; 4] = [
        |device| device.origin = "https://evil.example.com",
        |device| device.site = "example.com",
        |device| device.flags = PRESENT,
        |device| device.flags = VERIFIED,
    ];
    for change in changes {
        let mut device = Device::new();
        change(&mut device);
        let asked = site().ask_for_new("usr_1", "ada@example.com", &[]).expect("a question");
        assert!(site().new_passkey(asked.kept, &device.makes(&asked.options)).is_err());
    }
}
