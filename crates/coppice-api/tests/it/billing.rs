//! What an organization is asked for.

use coppice_test_support::{fields, text_of, text_of_pdf};
use serde_json::{Value, json};

use crate::http::EMAIL;
use crate::usage::SEALED;
use crate::{is_timestamp, shared};

#[test]
fn a_month_that_is_over_has_one_invoice_that_adds_up() {
    let http = shared();
    http.metastore(SEALED);
    http.metastore(
        "update organizations set created_at = '2026-01-05T00:00:00Z' where id = '{org}';
         update invoice_progress set month = '2026-02-01'",
    );
    http.issue_invoices();
    http.metastore("update invoice_progress set month = '2026-02-01'");
    http.issue_invoices();

    let list = http.get("/organizations/{org}/billing/invoices").expect(200);
    assert_eq!(list["pagination_metadata"], json!({ "has_more": false, "next_cursor": null }));
    let invoices = list["data"].as_array().expect("invoices");
    assert_eq!(invoices.len(), 1, "made once, whoever tries again");
    let invoice = &invoices[0];
    let names = ["amount_due", "currency", "id", "invoice_date", "invoice_number", "invoice_pdf", "status"];
    assert_eq!(fields(invoice), names);
    is_timestamp(&invoice["invoice_date"]);
    assert_eq!((&invoice["amount_due"], &invoice["currency"]), (&json!(171.1), &json!("EUR")));
    assert_eq!((&invoice["status"], &invoice["invoice_number"]), (&json!("issued"), &json!("2026-000001")));

    let path = format!("/organizations/{{org}}/billing/invoices/{}", text_of(&invoice["id"]));
    let details = http.get(&path).expect(200);
    assert_eq!((&details["total"], &details["month"]), (&json!("171.10"), &json!("2026-02")));
    let amounts: Vec<Value> = (details["lines"].as_array().expect("lines").iter())
        .map(|line| json!([line["description"], line["quantity"], line["unit_price"], line["amount"]]))
        .collect();
    assert_eq!(
        json!(amounts),
        json!([
            ["Instances of type micro", "0.333333", "0.30", "0.10"],
            ["Instances of type small", "1.500000", "100", "150.00"],
            ["Data sent to clients", "0.000000", "0.05", "0.00"],
            ["Storage", "0.014881", "67.2", "1.00"],
            ["Support", "1", "20.005", "20.00"]
        ]),
        "each rounded once, from what was measured"
    );
    let page = http.get(&format!("{path}?format=html"));
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert!(page.header("content-security-policy").contains("default-src 'none'"));
    let text = page.text();
    assert!(text.contains("Trees &#38; Sons") && text.contains("171.10 EUR"), "{text}");
    assert!(text.contains("=cmd|&#34;x&#34;, y"), "names are only texts: {text}");

    let sheet = http.get(&format!("{path}?format=pdf"));
    assert_eq!(sheet.header("content-type"), "application/pdf");
    assert_eq!(sheet.header("content-disposition"), "attachment; filename=\"invoice-2026-000001.pdf\"");
    let text = text_of_pdf(&sheet.bytes);
    for part in
        ["Trees & Sons", "Invoice 2026-000001", "Instances of type small", "171.10 EUR", "=cmd|\"x\", y"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(http.get(&format!("{path}?format=pdf")).bytes, sheet.bytes, "the same one each time");

    let other = http.new_organization("other");
    let foreign = path.replace("{org}", &other);
    http.get(&foreign).expect_error(404, "invoice_not_found");
    http.get("/organizations/{org}/billing/invoices/bil_x").expect_error(404, "invoice_not_found");
    http.get("/organizations/{org}/billing/invoices?cursor=bil_x").expect_error(400, "invalid_cursor");
    http.get("/organizations/{org}/billing/invoices?limit=0").expect_error(400, "invalid_query_parameter");
}

#[test]
fn a_subscription_at_a_marketplace_is_told_by_a_person_and_in_full() {
    let http = shared();
    let aws = json!({ "customer_id": "c", "product_id": "p", "account_id": "123456789012" });
    let told = json!({ "marketplace": "aws", "company_name": "Acme", "aws": aws });
    let register = |body: &Value| http.post("/marketplace/register", body);
    for (field, bad, code) in [
        ("marketplace", json!("gcp"), "invalid_field"),
        ("marketplace", Value::Null, "missing_field"),
        ("company_name", json!(""), "invalid_field"),
        ("company_name", json!("x".repeat(129)), "invalid_field"),
        ("aws", Value::Null, "missing_field"),
        ("aws", json!({ "customer_id": "", "product_id": "p", "account_id": "1" }), "invalid_field"),
        ("aws", json!({ "customer_id": "c", "product_id": "p" }), "missing_field"),
        ("company_name", json!("\u{202e}emcA"), "invalid_field"),
        ("aws", json!({ "customer_id": "c\0", "product_id": "p", "account_id": "1" }), "invalid_field"),
    ] {
        let mut body = told.clone();
        body[field] = bad;
        register(&body).expect_error(400, code);
    }
    let of_organization = http.new_token("/organizations/{org}/api-keys", json!({}));
    let refused = http.as_key(&of_organization, "POST", "/marketplace/register", Some(&told));
    refused.expect_error(403, "user_required");
    let reads = http.new_token("/api-keys", json!({ "scopes": ["org:read"] }));
    let refused = http.as_key(&reads, "POST", "/marketplace/register", Some(&told));
    refused.expect_error(403, "insufficient_scope");
}

#[test]
fn an_organization_says_where_invoices_go_and_sees_what_comes() {
    let http = shared();
    let id = http.new_organization("customer");
    let path = format!("/organizations/{id}/billing");
    let customer = http.get(&format!("{path}/customer")).expect(200);
    assert_eq!(
        customer,
        json!({
            "billing_email": EMAIL, "marketplace": null, "collection_method": "bank_transfer",
            "can_collect_payment": false, "has_payment_method": false, "default_payment_method": null,
            "credits": [],
            "credit_details": {
                "total_lifetime_credits": 0.0, "last_expiry": null, "last_expiry_with_balance": null,
                "active_credits": [], "last_active_credit_expiry": null, "total_active_credits": 0.0,
                "days_until_last_active_credit_expiry": null, "days_until_last_expiry_with_balance": null
            }
        })
    );
    let set =
        |email: Value| http.with("PATCH", &format!("{path}/customer"), &json!({ "billing_email": email }));
    assert_eq!(set(json!("Books@Example.com")).expect(200)["can_collect_payment"], false);
    let said = text_of(&http.get(&format!("{path}/customer")).expect(200)["billing_email"]);
    assert!(said.eq_ignore_ascii_case("books@example.com"), "{said}");
    set(json!("nowhere")).expect_error(400, "invalid_field");
    set(json!(null)).expect_error(400, "missing_field");

    let upcoming = http.get(&format!("{path}/invoices/upcoming")).expect(200);
    let names =
        ["amount_due", "created_at", "currency", "hosted_invoice_url", "subtotal", "target_date", "total"];
    assert_eq!(fields(&upcoming), names);
    assert_eq!(upcoming["currency"], "EUR");
    for session in ["checkout-session", "payment-method-session"] {
        let refused = http.call("POST", &format!("{path}/{session}"));
        assert_eq!(refused.expect_error(400, "billing_not_configured"), "billing is not configured");
    }
    let limited = http.new_token("/api-keys", json!({ "scopes": ["org:read"], "projects": ["prj_x"] }));
    let path = format!("{path}/invoices");
    http.as_key(&limited, "GET", &path, None).expect_error(403, "restricted_key");
}
