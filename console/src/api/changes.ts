// What changes something. Each says afterwards which answers are out of date.
import { api, take, type Schemas } from "./client";
import { type AtWebhook, type InBranch, type InOrganization, type InProject, queryClient } from "./queries";

const PROJECT = "/organizations/{organizationID}/projects/{projectID}";
const BRANCH = "/organizations/{organizationID}/projects/{projectID}/branches/{branchID}";

async function thenAnew<T>(work: Promise<T>, ...keys: string[]): Promise<T> {
  try {
    return await work;
  } finally {
    for (const key of keys) void queryClient.invalidateQueries({ queryKey: [key] });
  }
}

export const createBranch = (path: InProject, body: Schemas["CreateBranch"]) =>
  thenAnew(take(api.POST(`${PROJECT}/branches`, { params: { path }, body })), "tree");

export const updateBranch = (path: InBranch, body: Schemas["UpdateBranch"]) =>
  thenAnew(take(api.PATCH(BRANCH, { params: { path }, body })), "tree", "branch", "parameters");

/** Wakes these branches, also those that no connection wakes. */
export const wakeBranches = (paths: InBranch[]) => Promise.all(paths.map((path) => updateBranch(path, { hibernate: false })));

export const deleteBranch = (path: InBranch) =>
  thenAnew(take(api.DELETE(BRANCH, { params: { path } })), "tree", "trash");

export const undelete = (path: InBranch) =>
  thenAnew(take(api.POST(`${PROJECT}/trash/{branchID}/undelete`, { params: { path }, body: {} })), "tree", "trash");

export const restoreBranch = (path: InBranch, body: Schemas["RestoreBranch"]) =>
  thenAnew(take(api.POST(`${BRANCH}/restore`, { params: { path }, body })), "tree");

export const resetBranch = (path: InBranch, body: Schemas["ResetBranch"]) =>
  thenAnew(take(api.POST(`${BRANCH}/reset`, { params: { path }, body })), "tree", "branch", "history", "backup");

export const rotatePassword = (path: InBranch, username: string) =>
  thenAnew(take(api.POST(`${BRANCH}/credentials/rotate`, { params: { path }, body: { username } })), "credentials");

export const createProject = (path: InOrganization, name: string) =>
  thenAnew(take(api.POST("/organizations/{organizationID}/projects", { params: { path }, body: { name } })), "projects");

export const updateProject = (path: InProject, body: Schemas["UpdateProject"]) =>
  thenAnew(take(api.PATCH(PROJECT, { params: { path }, body })), "project", "projects");

export const deleteProject = (path: InProject) =>
  thenAnew(take(api.DELETE(PROJECT, { params: { path } })), "projects");

const ORGANIZATION = "/organizations/{organizationID}";

export const updateOrganization = (path: InOrganization, body: Schemas["UpdateOrganization"]) =>
  thenAnew(take(api.PUT(ORGANIZATION, { params: { path }, body })), "organization", "session");

export const createKey = (path: InOrganization, body: Schemas["CreateApiKey"]) =>
  thenAnew(take(api.POST(`${ORGANIZATION}/api-keys`, { params: { path }, body })), "keys");

export const createOwnKey = (body: Schemas["CreateApiKey"]) =>
  thenAnew(take(api.POST("/api-keys", { body })), "own-keys");

export const deleteKeys = (path: InOrganization, ids: string[]) =>
  thenAnew(take(api.DELETE(`${ORGANIZATION}/api-keys`, { params: { path }, body: { ids } })), "keys");

export const deleteOwnKeys = (ids: string[]) =>
  thenAnew(take(api.DELETE("/api-keys", { body: { ids } })), "own-keys");

export const setRole = (path: InOrganization & { userID: string }, role: Schemas["AssignableRole"]) =>
  thenAnew(take(api.PUT(`${ORGANIZATION}/members/{userID}/role`, { params: { path }, body: { role } })), "people");

export const removeMember = (path: InOrganization & { userID: string }) =>
  thenAnew(take(api.DELETE(`${ORGANIZATION}/members/{userID}`, { params: { path } })), "people");

export const invite = (path: InOrganization, email: string, role: Schemas["AssignableRole"]) =>
  thenAnew(take(api.POST(`${ORGANIZATION}/invitations`, { params: { path }, body: { email, role } })), "invitations");

export const withdraw = (path: InOrganization & { invitationID: string }) =>
  thenAnew(take(api.DELETE(`${ORGANIZATION}/invitations/{invitationID}`, { params: { path } })), "invitations");

export const setBudget = (path: InOrganization & { subjectID: string }, body: Schemas["SetBudget"]) =>
  thenAnew(take(api.PUT(`${ORGANIZATION}/budgets/{subjectID}`, { params: { path }, body })), "budgets", "tree", "branch");

export const deleteBudget = (path: InOrganization & { subjectID: string }) =>
  thenAnew(take(api.DELETE(`${ORGANIZATION}/budgets/{subjectID}`, { params: { path } })), "budgets", "tree", "branch");

export const setBillingEmail = (path: InOrganization, billing_email: string) =>
  thenAnew(take(api.PATCH(`${ORGANIZATION}/billing/customer`, { params: { path }, body: { billing_email } })), "customer");

/** Where a card is put on file. */
export const openNewCard = (path: InOrganization) =>
  take(api.POST(`${ORGANIZATION}/billing/checkout-session`, { params: { path } }));

/** Where cards are chosen and removed. */
export const openCards = (path: InOrganization) =>
  take(api.POST(`${ORGANIZATION}/billing/payment-method-session`, { params: { path } }));

export const linkInstallation = (path: InOrganization, body: Schemas["LinkGithubInstallation"]) =>
  thenAnew(take(api.POST(`${ORGANIZATION}/githubapp/installations`, { params: { path }, body })), "installations");

export const mapRepository = (path: InBranch, body: Schemas["MapGithubRepository"]) =>
  thenAnew(take(api.POST(`${BRANCH}/githubapp/repository`, { params: { path }, body })), "repository", "tree");

export const changeRepository = (path: InBranch, body: Schemas["MapGithubRepository"]) =>
  thenAnew(take(api.PUT(`${BRANCH}/githubapp/repository`, { params: { path }, body })), "repository", "tree");

export const unmapRepository = (path: InBranch) =>
  thenAnew(take(api.DELETE(`${BRANCH}/githubapp/repository`, { params: { path } })), "repository");

const WEBHOOK = "/organizations/{organizationID}/webhooks/{webhookID}";

export const createWebhook = (path: InOrganization, body: Schemas["CreateWebhook"]) =>
  thenAnew(take(api.POST(`${ORGANIZATION}/webhooks`, { params: { path }, body })), "webhooks");

export const updateWebhook = (path: AtWebhook, body: Schemas["UpdateWebhook"]) =>
  thenAnew(take(api.PATCH(WEBHOOK, { params: { path }, body })), "webhooks", "webhook", "deliveries");

export const rotateWebhook = (path: AtWebhook) =>
  thenAnew(take(api.POST(`${WEBHOOK}/rotate`, { params: { path } })), "webhook");

export const deleteWebhook = (path: AtWebhook) => thenAnew(take(api.DELETE(WEBHOOK, { params: { path } })), "webhooks");

export const resendDelivery = (path: AtWebhook & { deliveryID: string }) =>
  thenAnew(take(api.POST(`${WEBHOOK}/deliveries/{deliveryID}/resend`, { params: { path } })), "deliveries");
