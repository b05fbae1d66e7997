"""Who looks at a page, and in which time zone: three cookies, no secret of the server's.

The token of the API stays in a cookie that scripts cannot read; it is checked anew with every request, so a revoked one
is out at once. Forms carry a random text that is in a cookie, too (double submit), and must come from our own pages.
"""

from __future__ import annotations

import hmac
import secrets
from typing import NamedTuple
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from flask import Response, g, request

from app.schedule.errors import ScheduleError
from app.schedule.zones import zone

TOKEN = "pgtick_token"
CSRF = "pgtick_csrf"
ZONE = "pgtick_zone"
FIELD = "csrf"
_LOCAL = ("127.0.0.1", "localhost", "[::1]")


class Viewer(NamedTuple):
    """Who looks. Without tokens that is anybody who can reach the server, and all may be seen."""

    user_id: str | None = None
    """Whose token it is; None without tokens."""
    role: str = "admin"

    @property
    def only(self) -> str | None:
        """The one user whose jobs may be seen; None: everybody's."""
        return self.user_id if self.role == "user" else None

    @property
    def operates(self) -> bool:
        """Whether workers and other things that belong to nobody may be acted on."""
        return self.role != "user"


def viewer() -> Viewer:
    found: Viewer = g.get("viewer") or Viewer()
    return found


def token() -> str | None:
    """The token that the viewer logged in with."""
    return request.cookies.get(TOKEN) or None


def authorization() -> dict[str, str]:
    """The header that tells the API who asks."""
    known = token()
    return {} if known is None else {"Authorization": f"Bearer {known}"}


def viewer_zone() -> ZoneInfo:
    """The zone of the viewer's browser, as its script told us; UTC until then."""
    if "zone" not in g:
        try:
            g.zone = zone(request.cookies.get(ZONE, "UTC"))
        except ScheduleError:
            g.zone = zone("UTC")
    found: ZoneInfo = g.zone
    return found


def csrf_token() -> str:
    """The text that forms of this page carry."""
    if "csrf" not in g:
        given = request.cookies.get(CSRF, "")
        g.csrf_is_new = len(given) < 32
        g.csrf = secrets.token_urlsafe(32) if g.csrf_is_new else given
    text: str = g.csrf
    return text


def forged() -> bool:
    """Whether an acting request did not come from one of our forms."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None and site != "same-origin":
        return True
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.host:
        return True
    known, given = request.cookies.get(CSRF, ""), request.form.get(FIELD, "")
    return len(known) < 32 or not hmac.compare_digest(known.encode(), given.encode())


def remember(response: Response) -> None:
    """Sends the cookie of the forms when the viewer has none."""
    if g.get("csrf_is_new"):
        response.set_cookie(CSRF, g.csrf, httponly=True, samesite="Strict", secure=_secure())


def log_in(response: Response, given: str) -> None:
    response.set_cookie(TOKEN, given, httponly=True, samesite="Lax", secure=_secure())


def log_out(response: Response) -> None:
    response.delete_cookie(TOKEN, httponly=True, samesite="Lax", secure=_secure())


def _secure() -> bool:
    # Browsers drop secure cookies of plain HTTP; only this machine may be spoken to in that way.
    name = request.host if request.host.endswith("]") else request.host.rpartition(":")[0] or request.host
    return request.is_secure or name not in _LOCAL
