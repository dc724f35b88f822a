CREATE DOMAIN amount AS numeric(14,2) DEFAULT 0 CHECK (VALUE > -1000000 AND VALUE < 1000000);
CREATE DOMAIN positive AS amount CONSTRAINT above_zero CHECK (VALUE > 0);
CREATE TYPE money_of AS (currency char(3), value amount);
CREATE TABLE accounts (id int PRIMARY KEY, owner text, opened date DEFAULT CURRENT_DATE, limit_of money_of, kind char(1) DEFAULT 'a' CHECK (kind IN ('a', 'p', 'e')));
CREATE TABLE entries (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, debit int NOT NULL REFERENCES accounts, credit int NOT NULL, sum positive NOT NULL, note text DEFAULT E'a\\b''c', booked timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT two_sides CHECK (debit <> credit), FOREIGN KEY (credit) REFERENCES accounts (id) MATCH FULL);
CREATE FUNCTION balance(account int) RETURNS amount STABLE LANGUAGE plpgsql AS $$ BEGIN RETURN (SELECT sum(CASE WHEN credit = account THEN sum ELSE -sum END) FROM entries WHERE account IN (debit, credit)); END $$;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'never'; END $$;
CREATE TRIGGER never_change BEFORE UPDATE OR DELETE ON entries FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER never_empty BEFORE TRUNCATE ON entries EXECUTE FUNCTION refuse();
CREATE VIEW balances AS SELECT id, owner, balance(id) AS balance, (limit_of).value AS lim FROM accounts;
CREATE MATERIALIZED VIEW months AS SELECT date_trunc('month', booked) AS month, sum(sum) AS total FROM entries GROUP BY 1 WITH NO DATA;
CREATE INDEX months_total ON months (total DESC NULLS LAST);
CREATE INDEX entries_brin ON entries USING brin (booked) WITH (pages_per_range = 16);
CREATE TABLE audit (LIKE entries INCLUDING DEFAULTS, by name DEFAULT SESSION_USER) WITH (toast.autovacuum_enabled = false);
REVOKE ALL ON audit FROM app;
GRANT INSERT ON audit TO app;
REVOKE USAGE ON TYPE money_of FROM PUBLIC;
