import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { queryClient } from "./api/queries";
import { reloadOnceAfterUpgrades } from "./app/upgrade";
import { router } from "./app/router";
import { applyTheme } from "./app/theme";
import { Toasts } from "./ui/toasts";
import "./ui/tokens.css";
import "./ui/base.css";
import "./ui/parts.css";
import "./app/shell.css";

applyTheme();
reloadOnceAfterUpgrades();
createRoot(document.getElementById("root") as HTMLElement).render(
  <StrictMode>
    <QueryClientProvider client={queryClient}>
      <RouterProvider router={router} />
      <Toasts />
    </QueryClientProvider>
  </StrictMode>,
);
