CREATE SCHEMA "Sch.ema";
CREATE TYPE "Sch.ema"."my enum" AS ENUM ('it''s', 'a\b', '', 'ünïcode');
CREATE TABLE "Sch.ema"."Ta""ble" ("select" int PRIMARY KEY, "a b" text DEFAULT 'x''y', "line
break" "Sch.ema"."my enum" DEFAULT 'it''s', "$1" text CHECK ("$1" <> '; DROP TABLE x; --'));
CREATE TABLE "Sch.ema"."Ta""ble.select" ("user" int REFERENCES "Sch.ema"."Ta""ble", "order" serial);
CREATE INDEX "in ON ONLY dex" ON "Sch.ema"."Ta""ble" ("a b", lower("$1"));
CREATE FUNCTION "Sch.ema"."f n"("a ""rg" int DEFAULT 1, OUT "o ut" text) LANGUAGE sql AS $f$ SELECT $$ ; $$ $f$;
CREATE VIEW "Sch.ema"."V w" AS SELECT "select" AS "from", "line
break" FROM "Sch.ema"."Ta""ble" WHERE "a b" LIKE 'a''%' OR "$1" = E'tab\t\\';
CREATE FUNCTION "Sch.ema"."tr g"() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER "t ""r" BEFORE INSERT ON "Sch.ema"."Ta""ble" FOR EACH ROW EXECUTE FUNCTION "Sch.ema"."tr g"('a', '
DROP TABLE b;');
CREATE POLICY "p; o" ON "Sch.ema"."Ta""ble" USING ("a b" IS NULL);
COMMENT ON COLUMN "Sch.ema"."Ta""ble"."line
break" IS E'two\nlines \\';
GRANT SELECT ON "Sch.ema"."Ta""ble" TO "odd "" role";
CREATE TABLE public.felled (id int);
CREATE VIEW public."<img src=x onerror=""document.title='evil'"">" AS SELECT id FROM public.felled;
