"""A private MediaWiki from the Debian package: SQLite, PHP's own server, everything under one folder.

Nothing is written outside that folder. Namespaces 3000 (Finance) and 3002 (HR) exist; ``acl.json`` restricts namespaces
to groups, as extensions do, and gives or takes rights of groups; it is read anew by each request.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from infra.errors import InfraError, StartError
from infra.ports import LOOPBACK, free_port

PACKAGE = Path("/usr/share/mediawiki")
EXTENSIONS = ("Cite", "ParserFunctions", "SyntaxHighlight_GeSHi")
ADMIN, ADMIN_PASSWORD = "Admin", "headwater-admin-password"
CONNECTOR, CONNECTOR_PASSWORD = "Connector", "headwater-connector-password"
BOT_PASSWORD = "0123456789abcdef0123456789abcdef"
USER_PASSWORD = "headwater-user-password"
HR, FINANCE = 3002, 3000
RESTRICTED = {str(FINANCE): ["finance"], str(HR): ["hr"]}
PHP = ("-d", "opcache.enable_cli=1", "-d", "upload_max_filesize=100M", "-d", "post_max_size=100M")
PATIENCE_S = 60.0


def available() -> str | None:
    """Why no MediaWiki can be started here, None where one can."""
    missing = [name for name in ("php",) if shutil.which(name) is None]
    if missing or not (PACKAGE / "api.php").is_file():
        return (
            "MediaWiki is not installed: apt-get install --no-install-recommends mediawiki php-cli php-sqlite3 php-intl"
        )
    modules = subprocess.run(["php", "-m"], capture_output=True, text=True, check=False).stdout.split()
    lacking = sorted({"pdo_sqlite", "intl", "mbstring"} - {m.lower() for m in modules})
    return f"PHP lacks {', '.join(lacking)}: apt-get install php-sqlite3 php-intl php-mbstring" if lacking else None


class WikiRefusal(InfraError):
    """The wiki refused something; ``code`` is its word for why."""

    def __init__(self, code: str, info: str) -> None:
        super().__init__(f"the wiki refused: {code}: {info}.", "See what its administrator may do.")
        self.code = code


class MediaWikiServer:
    """One wiki. ``udp_port`` is where its change feed is sent; ``jobs``: run its job queue, as a wiki's cron does."""

    def __init__(
        self, folder: Path, *, port: int | None = None, udp_port: int | None = None, jobs: bool = True
    ) -> None:
        self.folder = folder
        self.port = port or free_port()
        self.url = f"http://{LOOPBACK}:{self.port}"
        self.udp_port, self._jobs = udp_port, jobs
        self._server: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._runner: threading.Thread | None = None
        self._admin: WikiUser | None = None

    @property
    def admin(self) -> WikiUser:
        """The administrator, signed in."""
        if self._admin is None:
            self._admin = WikiUser(self.url, ADMIN, ADMIN_PASSWORD)
        return self._admin

    def start(self) -> None:
        """Install where this folder holds no wiki yet, then serve. Raises StartError."""
        fresh = not (self.folder / "LocalSettings.php").exists()
        if fresh:
            self._install()
        log = (self.folder / "php.log").open("ab")
        with log:
            self._server = subprocess.Popen(
                ["php", *PHP, "-S", f"{LOOPBACK}:{self.port}", "-t", str(PACKAGE)],
                env=self._environment() | {"PHP_CLI_SERVER_WORKERS": "4"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # workers are its children and end with the group
            )
        self._wait()
        if fresh:
            for name in ("finance", "hr"):
                self.admin.groups(ADMIN, add=name)
                self.admin.groups(CONNECTOR, add=name)
        if self._jobs:
            self._stopping.clear()
            self._runner = threading.Thread(target=self._run_jobs_for_ever, daemon=True)
            self._runner.start()

    def stop(self) -> None:
        """End the server and its workers; the wiki stays in its folder."""
        self._stopping.set()
        if self._runner is not None:
            self._runner.join(PATIENCE_S)
            self._runner = None
        if self._server is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait(PATIENCE_S)
            self._server = None
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def restrict(
        self,
        namespaces: dict[str, list[str]],
        rights: dict[str, dict[str, bool]] | None = None,
        revoked: dict[str, dict[str, bool]] | None = None,
    ) -> None:
        """Write the wiki's rules: namespace = groups that may read it, and rights of groups given or taken."""
        whole = {"namespaces": namespaces, "rights": rights or {}, "revoked": revoked or {}}
        path = self.folder / "acl.json"
        path.with_suffix(".new").write_text(json.dumps(whole), encoding="utf-8")
        path.with_suffix(".new").replace(path)

    def user(self, name: str, password: str = USER_PASSWORD) -> WikiUser:
        """Somebody, signed in."""
        return WikiUser(self.url, name, password)

    def run_jobs(self) -> None:
        """Run the job queue to its end, once."""
        self._maintain("runJobs.php")

    def jobs_waiting(self) -> int:
        """How many jobs wait."""
        for path in sorted((self.folder / "data").glob("*job*.sqlite")) or [self.folder / "data" / "wiki.sqlite"]:
            base = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)
            try:
                return int(base.execute("SELECT COUNT(*) FROM job WHERE job_attempts < 3").fetchone()[0])
            finally:
                base.close()
        return 0

    def _run_jobs_for_ever(self) -> None:
        while not self._stopping.wait(0.2):
            try:
                if self.jobs_waiting():
                    self.run_jobs()
            except (sqlite3.Error, StartError):
                continue  # the wiki is writing: asked again at once

    def _install(self) -> None:
        for name in ("data", "images", "cache"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        options = {
            "confpath": str(self.folder),
            "dbtype": "sqlite",
            "dbpath": str(self.folder / "data"),
            "dbname": "wiki",
            "server": self.url,
            "scriptpath": "",
            "extensions": ",".join(e for e in EXTENSIONS if (PACKAGE / "extensions" / e).is_dir()),
            "pass": ADMIN_PASSWORD,
        }
        given = [part for name, value in options.items() for part in (f"--{name}", value)]
        self._maintain("install.php", *given, "Headwater", ADMIN)
        with (self.folder / "LocalSettings.php").open("a", encoding="utf-8") as settings:
            settings.write(self._settings())
        self.restrict(RESTRICTED)
        self._maintain("createAndPromote.php", "--bot", CONNECTOR, CONNECTOR_PASSWORD)
        grants = "basic,highvolume"
        self._maintain("createBotPassword.php", "--appid", "sync", "--grants", grants, CONNECTOR, BOT_PASSWORD)

    def _settings(self) -> str:
        feed = ""
        if self.udp_port is not None:
            feed = (
                "$wgRCFeeds['headwater'] = [ 'formatter' => 'JSONRCFeedFormatter', 'omit_bots' => false,\n"
                f"  'add_interwiki_prefix' => false, 'uri' => 'udp://{LOOPBACK}:{self.udp_port}' ];\n"
            )
        return SETTINGS.replace("FOLDER", str(self.folder)) + feed

    def _maintain(self, script: str, *arguments: str) -> None:
        self._php([str(PACKAGE / "maintenance" / script), *arguments])

    def _php(self, arguments: list[str]) -> None:
        done = subprocess.run(
            ["php", *arguments],
            env=self._environment(),
            cwd=PACKAGE,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            told = (done.stdout + done.stderr)[-1500:]
            raise StartError(f"MediaWiki's {Path(arguments[0]).name} failed: {told}", "See above what it lacks.")

    def _environment(self) -> dict[str, str]:
        path = self.folder / "LocalSettings.php"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MW_")}
        return environment | ({"MW_CONFIG_FILE": str(path)} if path.exists() else {})

    def _wait(self) -> None:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                if httpx.get(f"{self.url}/api.php", params={"action": "query", "format": "json"}).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
        raise StartError(f"MediaWiki does not answer at {self.url}.", f"See {self.folder / 'php.log'}.")


SETTINGS = r"""
$wgScriptPath = '';
$wgArticlePath = '/index.php?title=$1';
$wgEnableUploads = true;
$wgFileExtensions = [ 'png', 'txt', 'pdf', 'csv' ];
$wgUploadDirectory = 'FOLDER/images';
$wgUploadPath = '/img_auth.php';
$wgCacheDirectory = 'FOLDER/cache';
$wgSessionCacheType = CACHE_DB;
$wgJobRunRate = 0;
$wgRateLimits = [];
$wgPasswordAttemptThrottle = [];
$wgAccountCreationThrottle = [];
$wgExtraNamespaces += [ 3000 => 'Finance', 3001 => 'Finance_talk', 3002 => 'HR', 3003 => 'HR_talk' ];
$wgContentNamespaces = [ NS_MAIN, 3000, 3002 ];
foreach ( [ 'deleterevision', 'deletelogentry', 'mergehistory', 'import', 'importupload' ] as $right ) {
  $wgGroupPermissions['sysop'][$right] = true;
}
$wgGroupPermissions['*']['edit'] = false;
$wgGroupPermissions['finance']['finance'] = true;
$wgGroupPermissions['hr']['hr'] = true;
$wgAllowUserJs = false;
$headwater = json_decode( (string)@file_get_contents( 'FOLDER/acl.json' ), true ) ?: [];
foreach ( $headwater['rights'] ?? [] as $group => $rights ) {
  $wgGroupPermissions[$group] = array_merge( $wgGroupPermissions[$group] ?? [], $rights );
}
foreach ( $headwater['revoked'] ?? [] as $group => $rights ) {
  $wgRevokePermissions[$group] = $rights;
}
$wgHooks['getUserPermissionsErrors'][] = static function ( $title, $user, $action, &$result ) use ( $headwater ) {
  $groups = $headwater['namespaces'][(string)$title->getNamespace()] ?? null;
  if ( $action !== 'read' || $groups === null ) {
    return true;
  }
  $own = MediaWiki\MediaWikiServices::getInstance()->getUserGroupManager()->getUserEffectiveGroups( $user );
  if ( array_intersect( $groups, $own ) ) {
    return true;
  }
  $result = [ 'badaccess-groups', implode( ', ', $groups ), count( $groups ) ];
  return false;
};
"""


class WikiUser:
    """Somebody's session at a wiki: what people do there, for seeds and tests."""

    def __init__(self, url: str, name: str, password: str) -> None:
        self.name = name
        self._client = httpx.Client(base_url=url, timeout=PATIENCE_S)
        self._tokens: dict[str, str] = {}
        token = self._token("login")
        answer = self._post({"action": "login", "lgname": name, "lgpassword": password, "lgtoken": token})
        if answer["login"]["result"] != "Success":
            raise StartError(f"{name} cannot sign in: {answer['login']}.", "Create the account first.")
        self._tokens.clear()

    def get(self, **params: Any) -> dict[str, Any]:
        """A question."""
        return self._checked(self._client.get("/api.php", params={**params, "format": "json", "formatversion": 2}))

    def act(self, action: str, *, token: str = "csrf", files: Any = None, **params: Any) -> dict[str, Any]:
        """Something done. Raises WikiRefusal."""
        given = {
            "action": action,
            **params,
            ("createtoken" if token == "createaccount" else "token"): self._token(token),
        }
        return self._post(given, files)

    def edit(self, title: str, text: str, **params: Any) -> tuple[int, int]:
        """Save a page. Returns its page id and the new revision's id (0 where nothing changed)."""
        done = self.act("edit", title=title, text=text, **params)["edit"]
        return int(done["pageid"]), int(done.get("newrevid", 0))

    def delete(self, title: str) -> None:
        """Delete a page."""
        self.act("delete", title=title)

    def restore(self, title: str) -> None:
        """Restore a deleted page."""
        self.act("undelete", title=title)

    def move(self, old: str, new: str, **params: Any) -> None:
        """Rename a page. ``noredirect=1`` leaves no redirect."""
        self.act("move", **{"from": old, "to": new}, **params)

    def hide(self, revision: int, *, show: bool = False) -> None:
        """Withdraw the text of a revision, or give it back."""
        which = {"show": "content"} if show else {"hide": "content"}
        self.act("revisiondelete", type="revision", ids=revision, **which)

    def upload(self, name: str, body: bytes, comment: str = "") -> None:
        """A file, or a new version of it."""
        self.act("upload", files={"file": (name, body)}, filename=name, comment=comment, text=comment, ignorewarnings=1)

    def groups(self, user: str, *, add: str = "", remove: str = "", **params: Any) -> None:
        """Change somebody's groups."""
        self.act("userrights", token="userrights", user=user, add=add, remove=remove, **params)

    def create(self, name: str, password: str = USER_PASSWORD) -> None:
        """A new account."""
        given = {"username": name, "password": password, "retype": password, "createreturnurl": "http://127.0.0.1/"}
        done = self.act("createaccount", token="createaccount", **given)["createaccount"]
        if done["status"] != "PASS":
            raise StartError(f"{name} cannot be created: {done}.", "Choose another name.")

    def may_read(self, titles: list[str]) -> dict[str, bool]:
        """The wiki's own answer, by title, whether this user may read a page."""
        found: dict[str, bool] = {}
        for first in range(0, len(titles), 50):
            some = titles[first : first + 50]
            try:
                answer = self.get(action="query", titles="|".join(some), prop="info", intestactions="read")
            except WikiRefusal as error:
                if error.code != "readapidenied":
                    raise
                found |= dict.fromkeys(some, False)  # may read nothing at all
            else:
                found |= {page["title"]: bool(page["actions"]["read"]) for page in answer["query"]["pages"]}
        return found

    def close(self) -> None:
        """Disconnect."""
        self._client.close()

    def _token(self, kind: str) -> str:
        if kind not in self._tokens:
            answer = self.get(action="query", meta="tokens", type=kind)
            self._tokens[kind] = answer["query"]["tokens"][f"{kind}token"]
        return self._tokens[kind]

    def _post(self, params: dict[str, Any], files: Any = None) -> dict[str, Any]:
        data = {**params, "format": "json", "formatversion": 2}
        return self._checked(self._client.post("/api.php", data=data, files=files))

    def _checked(self, response: httpx.Response) -> dict[str, Any]:
        answer: dict[str, Any] = response.json()
        if "error" in answer:
            raise WikiRefusal(str(answer["error"].get("code")), str(answer["error"].get("info")))
        return answer
