// Completes a form with a passkey: a button asks the device, and the form carries what it answers.
"use strict";

for (const button of document.querySelectorAll("button[data-passkey]")) {
  const form = button.form;
  const problem = button.previousElementSibling;
  const tell = (text) => {
    problem.textContent = text;
    problem.hidden = false;
  };
  const isNew = button.dataset.passkey === "create";
  const options = JSON.parse(button.dataset.options);

  async function answer() {
    if (isNew) {
      const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(options);
      return navigator.credentials.create({ publicKey });
    }
    const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options);
    return navigator.credentials.get({ publicKey });
  }

  button.hidden = false;
  if (isNew) {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      button.click();
    });
  }
  button.addEventListener("click", async () => {
    problem.hidden = true;
    // What else the form asks for, but for the code that the passkey takes the place of.
    const others = [...form.elements].filter((field) => field.name !== "code");
    if (!others.every((field) => field.reportValidity())) return;
    if (!window.PublicKeyCredential?.parseRequestOptionsFromJSON) {
      tell("This browser can't use passkeys here. Use a newer one, or another way.");
      return;
    }
    button.disabled = true;
    try {
      form.elements.passkey.value = JSON.stringify((await answer()).toJSON());
      form.submit();
    } catch (error) {
      button.disabled = false;
      const isKnown = isNew && error.name === "InvalidStateError";
      tell(isKnown ? "This device has a passkey of yours already." : "Nothing came from your device. Try again, or use another way.");
    }
  });
}
