"""What an HTML element is by its own tag and attributes: hidden, boilerplate for sure or in doubt, an admonition."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

from lxml import etree


class Doubt(IntEnum):
    """How sure it is that an element is not content."""

    CONTENT = 0
    LINKS = 1  # boilerplate where links are most of its text
    PLACE = 2  # boilerplate by its tag, unless it is part of the main content or most of the page's text
    LIKELY = 3  # boilerplate unless most of the page's text is in it
    SURE = 4


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set of names."""
    return frozenset(text.split())


HEADINGS = {f"h{n}": n for n in range(1, 7)}
BLOCKS = words(
    "address article aside blockquote body caption center dd details dialog dir div dl dt fieldset figcaption figure "
    "footer form frameset h1 h2 h3 h4 h5 h6 header hgroup hr html legend li listing main menu nav noframes ol "
    "optgroup option p plaintext pre search section summary table tbody td tfoot th thead tr ul xmp"
)
_UNREAD = words(
    "script style noscript head iframe object embed canvas audio video select datalist textarea input map area rp "
    "template"
)
_SURE_ROLES = words("navigation search menu menubar toolbar")
_LIKELY_ROLES = words("banner contentinfo complementary")
_SURE = words(
    "nav navbar navigation site-nav mw-navigation skip-link skip-nav skip-to-content skip-to-main skiplink "
    "mw-jump-link mw-editsection headerlink heading-anchor anchorjs-link header-anchor hash-link octicon-link "
    "edit-link "
    "edit-this-page theme-edit-this-page printfooter share-buttons share-bar social-share sharedaddy "
    "social-sharing addtoany_share_save_container addthis_toolbox pagination-nav pagination rst-footer-buttons "
    "footnote-backref footnote-back reversefootnote mw-cite-backlink data-footnote-backref copybtn copy-button "
    "adsbygoogle katex-html mathjax_preview"
)
_LIKELY = words(
    "breadcrumb breadcrumbs sidebar site-header site-footer footer page-footer global-footer footer-links toc "
    "table-of-contents table-of-content noprint navbox catlinks newsletter newsletter-signup promo sponsored "
    "advert advertisement ads ad-container ad-slot ad-banner banner-ad d-none is-hidden display-none cookie-banner "
    "sphinxsidebar bd-sidebar md-sidebar md-footer md-header wy-nav-side gh-header theme-doc-footer related-posts "
    "related-articles recommended-posts you-might-also-like page-nav prev-next comments-form feedback-widget"
)
_MAX_NAME = 100  # characters; longer classes and ids are generated
_LINKS = re.compile(
    r"(?:^|[-_])(?:nav|navi|menu|submenu|links|linklist|pager|paging|related|recommended|share|social|tags|sitemap|"
    r"breadcrumbs?|sidebar|footer|header|topbar|toolbar|sidenav|subnav|pagenav)(?:$|[-_])"
)
# Containers of the usual consent managers, by the beginning of id or class.
_CONSENT_VENDOR = re.compile(
    r"^(?:onetrust-|ot-sdk-|optanon|cybotcookiebot|cookiebot|usercentrics|uc-banner|didomi-|qc-cmp|truste_|trustarc|"
    r"iubenda-cs-|osano-cm-|klaro$|cmplz-|cookieyes|cky-|cookie-law-info|moove_gdpr|borlabs-?cookie|borlabscookie|"
    r"tarteaucitron|sp_message_container|evidon|cc-window|cc-banner|cookieconsent|cookiefirst|termly-|civic-cookie|"
    r"ccc-|cmpbox|fc-consent|axeptio|cookiehub|cookie-script|ketch-|hs-eu-cookie)"
)
_CONSENT = re.compile(
    r"(?:cookie|consent|gdpr|ccpa)s?[-_]?(?:\w*[-_])?(?:banner|notice|notification|bar|popup|pop-up|modal|overlay|"
    r"dialog|layer|message|alert|toast|prompt|disclaimer|wall|consent|info-bar)"
)
_CONSENT_WORD = re.compile(r"cookie|consent|gdpr|ccpa")
_AD = re.compile(r"^(?:div-gpt-ad|google_ads|taboola|outbrain|ad-(?:unit|wrapper|slot|container|placement))")
_SCREEN_READER = words(
    "sr-only visually-hidden visuallyhidden screen-reader-text screen-reader-only show-for-sr hidden-visually "
    "u-visually-hidden cdk-visually-hidden element-invisible"
)
_SHOWN_SOMEWHERE = re.compile(r":|^d-(?:sm|md|lg|xl|xxl|print)-|^(?:visible|show)")
_HIDDEN_STYLE = re.compile(
    r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|opacity\s*:\s*(?:0|0?\.0+|0%)\s*(?=;|!|$)|"
    r"font-size\s*:\s*0(?:\.0+)?[a-z%]*\s*(?=;|!|$)|text-indent\s*:\s*-\s*\d{3,}|"
    r"(?:left|right|top|bottom|margin-left|margin-top)\s*:\s*-\s*\d{4,}|clip\s*:\s*rect\s*\(\s*[01](?:px)?[\s,]|"
    r"clip-path\s*:\s*inset\s*\(\s*(?:50|100)%)",
    re.IGNORECASE,
)
_FIXED = re.compile(r"position\s*:\s*(?:fixed|sticky)", re.IGNORECASE)
_SKIP_TEXT = re.compile(
    r"\s*(?:skip|jump) (?:to|navigation)|\s*zum inhalt|\s*aller au contenu|\s*ir al contenido", re.I
)
_EDIT_TEXT = re.compile(
    r"\s*(?:\W\s*)?(?:edit|improve|suggest (?:edits|changes)|bearbeiten)"
    r"(?: (?:this|on) ?(?:page|github|gitlab|section)?(?: (?:on|in) \w+)?)?\s*",
    re.IGNORECASE,
)
_PAGER_RELS = words("prev next")
_ARROWS = frozenset("↩↑^⏎︎️↵ ")


def tag_of(node: etree._Element) -> str:
    """The tag in lower case, empty for what is no element."""
    return node.tag.lower() if isinstance(node.tag, str) else ""


def names_of(node: etree._Element) -> list[str]:
    """Classes and id in lower case."""
    classes, name = node.get("class"), node.get("id")
    if classes is None and name is None:
        return []
    return f"{classes or ''} {name or ''}".lower().split()


def hidden(node: etree._Element, tag: str) -> bool:
    """Whether nobody sees the element, or it holds no text to read. Tabs' panels are hidden in turns: they stay."""
    if tag in _UNREAD:
        if tag == "template":
            return node.get("shadowrootmode") is None
        return True
    if tag == "button":
        # A heading that is nothing but a button opens what stands below it.
        parent = node.getparent()
        alone = parent is not None and not any((text or "").strip() for text in (parent.text, node.tail))
        return parent is None or not alone or tag_of(parent) not in (*HEADINGS, "summary", "dt", "legend")
    if tag == "dialog" and node.get("open") is None:
        return True
    if node.get("role") == "tabpanel":
        return False
    if node.get("hidden") not in (None, "until-found"):
        return True
    style = node.get("style")
    return style is not None and _HIDDEN_STYLE.search(style) is not None


def doubt(node: etree._Element, tag: str) -> Doubt:
    """What the element's tag, role, id and classes make of it. Its text and place are weighed by the survey."""
    if tag == "nav":
        return Doubt.SURE
    if tag == "a":
        return _link_doubt(node)
    role = node.get("role")
    if role is not None:
        if role in _SURE_ROLES or role == "doc-backlink":
            return Doubt.SURE
        if role == "tablist":
            return Doubt.SURE
    names = names_of(node)
    found = Doubt.CONTENT
    if names and tag not in ("html", "body"):
        found = _named(node, names, tag)
    if found < Doubt.LIKELY and (role in _LIKELY_ROLES or node.get("aria-hidden") == "true"):
        return Doubt.LIKELY
    if found < Doubt.PLACE and tag in ("footer", "header", "aside"):
        return Doubt.CONTENT if admonition(node, tag) else Doubt.PLACE
    return found


def _named(node: etree._Element, names: list[str], tag: str) -> Doubt:
    if not _SURE.isdisjoint(names):
        return Doubt.SURE
    if not _SCREEN_READER.isdisjoint(names) and tag != "h1":
        return Doubt.CONTENT if _stands_for_hidden(node) else Doubt.SURE
    found = Doubt.CONTENT
    for name in names:
        grade, consent = _graded(name)
        if grade is Doubt.SURE or (consent and _floats(node)):
            return Doubt.SURE
        if name in ("hidden", "d-none") and any(_SHOWN_SOMEWHERE.search(other) for other in names):
            continue
        found = max(found, grade)
    return found


@lru_cache(maxsize=8192)
def _graded(name: str) -> tuple[Doubt, bool]:
    """What a class or id says by itself, and whether it speaks of consent."""
    if len(name) > _MAX_NAME:
        return Doubt.CONTENT, False
    if _CONSENT_VENDOR.match(name) or _CONSENT.search(name) or _AD.match(name):
        return Doubt.SURE, True
    consent = _CONSENT_WORD.search(name) is not None
    if name in _LIKELY or name == "hidden":
        return Doubt.LIKELY, consent
    return (Doubt.LINKS if _LINKS.search(name) else Doubt.CONTENT), consent


def _floats(node: etree._Element) -> bool:
    role, style = node.get("role"), node.get("style")
    return (
        role in ("dialog", "alertdialog", "alert")
        or node.get("aria-modal") == "true"
        or tag_of(node) == "dialog"
        or (style is not None and _FIXED.search(style) is not None)
    )


def _stands_for_hidden(node: etree._Element) -> bool:
    """Text for screen readers beside a picture of it that they do not read."""
    beside = (node.getnext(), node.getprevious())
    return any(other is not None and other.get("aria-hidden") == "true" for other in beside)


def _link_doubt(node: etree._Element) -> Doubt:
    names = names_of(node)
    if names and (not _SURE.isdisjoint(names) or not _SCREEN_READER.isdisjoint(names)):
        return Doubt.SURE
    href = node.get("href") or ""
    if node.get("role") == "doc-backlink" or node.get("data-footnote-backref") is not None:
        return Doubt.SURE
    if node.get("rel") in _PAGER_RELS:
        return Doubt.SURE
    text = node.text or ""
    if href.startswith("#"):
        if _SKIP_TEXT.match(text) or (text.strip() and set(text) <= _ARROWS) or text.strip() in ("¶", "#", "§", "🔗"):
            return Doubt.SURE
    elif len(text) < 60 and len(node) == 0 and _EDIT_TEXT.fullmatch(text):
        return Doubt.SURE
    return Doubt.CONTENT


_KINDS = {
    name: name.capitalize()
    for name in words(
        "note info tip hint important warning caution danger attention error example todo abstract summary question "
        "faq success check failure fail bug quote seealso tldr"
    )
} | {"seealso": "See also", "check": "Success", "fail": "Failure", "secondary": "Note"}
_PLAIN_KINDS = words(
    "note info tip hint important warning caution danger attention"
)  # enough without a container's name
_ADMONITION = re.compile(
    r"^(?:theme-)?(?:admonition|markdown-alert|callout|custom-block|admonitionblock|starlight-aside|alert|"
    r"confluence-information-macro|bs-callout|hint|message|notice|admon)(?:[-_]+([a-z]+))?$"
)
_ADMONITION_TAGS = words("div aside section blockquote details p")


def admonition(node: etree._Element, tag: str) -> str | None:
    """The kind of note or warning that the element is (``Warning``), or None."""
    if tag not in _ADMONITION_TAGS or node.get("class") is None:
        return None
    names = [name for name in (node.get("class") or "").lower().split() if name != "alert-dismissible"]
    container, kind = False, None
    for name in names:
        match = _ADMONITION.match(name)
        if match:
            container = True
            kind = kind or _KINDS.get(match.group(1) or "")
        if name in _KINDS:
            kind = kind or _KINDS[name]
            container = container or (name in _PLAIN_KINDS and tag not in ("p", "section") and len(names) == 1)
    if not container:
        return None
    # A bare "alert" or "message" is any box of an interface.
    return kind or ("Note" if not {"admonition", "callout", "admonitionblock"}.isdisjoint(names) else None)


_TITLE = re.compile(r"(?:^|[-_])(?:title|heading|admonitionheading)(?:$|[-_])")


def admonition_title(node: etree._Element) -> etree._Element | None:
    """The element that holds an admonition's own title, or None."""
    for number, child in enumerate(node.iter()):
        if number > 8:
            return None
        if child is not node and (
            tag_of(child) == "summary"
            or any(_TITLE.search(name) for name in (child.get("class") or "").lower().split())
        ):
            return child
    return None
