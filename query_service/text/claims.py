"""Words that decide what a sentence claims: negations, opposites, hedges, conditions, quantifiers, and close synonyms.

English and German. All words are in the folded spelling of ``pipeline.analysis.plain``: lower case, no accents.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final

STOP: Final = frozenset(
    [
        "a",
        "an",
        "the",
        "this",
        "that",
        "these",
        "those",
        "it",
        "its",
        "they",
        "them",
        "their",
        "he",
        "she",
        "his",
        "her",
        "him",
        "we",
        "us",
        "our",
        "i",
        "you",
        "your",
        "yours",
        "one",
        "ones",
        "is",
        "are",
        "was",
        "were",
        "be",
        "been",
        "being",
        "am",
        "do",
        "does",
        "did",
        "done",
        "has",
        "have",
        "had",
        "having",
        "will",
        "would",
        "shall",
        "to",
        "of",
        "in",
        "on",
        "at",
        "by",
        "for",
        "from",
        "with",
        "as",
        "into",
        "onto",
        "over",
        "under",
        "and",
        "or",
        "but",
        "so",
        "than",
        "then",
        "there",
        "here",
        "which",
        "who",
        "whom",
        "whose",
        "what",
        "where",
        "how",
        "why",
        "also",
        "too",
        "such",
        "very",
        "just",
        "now",
        "still",
        "yet",
        "both",
        "either",
        "per",
        "via",
        "about",
        "up",
        "out",
        "off",
        "s",
        "t",
        "re",
        "ve",
        "ll",
        "d",
        "m",
        "please",
        "if",
        "when",
        "der",
        "die",
        "das",
        "den",
        "dem",
        "des",
        "ein",
        "eine",
        "einen",
        "einem",
        "einer",
        "eines",
        "er",
        "sie",
        "es",
        "ihr",
        "ihre",
        "ihren",
        "ihrem",
        "ihrer",
        "sein",
        "seine",
        "seinen",
        "ihm",
        "ihn",
        "wir",
        "uns",
        "unser",
        "ich",
        "du",
        "man",
        "mich",
        "dich",
        "sich",
        "ist",
        "sind",
        "war",
        "waren",
        "wird",
        "werden",
        "wurde",
        "wurden",
        "hat",
        "haben",
        "hatte",
        "zu",
        "zum",
        "zur",
        "im",
        "in",
        "am",
        "an",
        "auf",
        "aus",
        "bei",
        "von",
        "vom",
        "mit",
        "fur",
        "durch",
        "um",
        "uber",
        "und",
        "oder",
        "aber",
        "denn",
        "dass",
        "als",
        "wie",
        "so",
        "da",
        "dort",
        "hier",
        "auch",
        "noch",
        "je",
        "pro",
        "ja",
        "sowie",
        "dieser",
        "diese",
        "dieses",
        "diesem",
        "diesen",
        "welche",
        "welcher",
        "wenn",
        "man",
        "bitte",
        "seit",
        "dann",
    ]
)
# Verbs and nouns that say little; they count a fifth.
LIGHT: Final = frozenset(
    [
        "get",
        "gets",
        "got",
        "receive",
        "receives",
        "take",
        "takes",
        "taken",
        "make",
        "makes",
        "need",
        "needs",
        "needed",
        "use",
        "used",
        "using",
        "go",
        "goes",
        "put",
        "set",
        "give",
        "gives",
        "given",
        "come",
        "comes",
        "keep",
        "kept",
        "become",
        "happen",
        "happens",
        "mean",
        "means",
        "say",
        "says",
        "let",
        "lets",
        "have",
        "run",
        "runs",
        "way",
        "thing",
        "gibt",
        "geben",
        "braucht",
        "brauchen",
        "bekommt",
        "bekommen",
        "macht",
        "machen",
        "geht",
        "gehen",
        "liegt",
        "dauert",
        "kann",
        "konnen",
        "dies",
        "gilt",
        "gelten",
        "want",
        "wants",
        "must",
        "can",
        "may",
        "should",
        "could",
        "might",
    ]
)
NEGATORS: Final = frozenset(
    [
        "not",
        "no",
        "never",
        "none",
        "nobody",
        "nothing",
        "neither",
        "nor",
        "cannot",
        "nowhere",
        "hardly",
        "nicht",
        "kein",
        "keine",
        "keinen",
        "keinem",
        "keiner",
        "keines",
        "nie",
        "niemals",
        "niemand",
        "nichts",
        "weder",
        "n't",
        "ne",
        "pas",
        "jamais",
        "aucun",
    ]
)
JOINTS: Final = frozenset(["and", "but", "while", "whereas", "und", "aber", "wahrend", "sondern"])  # of parts
ANAPHORS: Final = frozenset(
    [
        "it",
        "its",
        "they",
        "them",
        "their",
        "this",
        "these",
        "those",
        "he",
        "she",
        "his",
        "her",
        "him",
        "itself",
        "otherwise",
        "both",
        "er",
        "sie",
        "es",
        "ihr",
        "ihre",
        "ihren",
        "ihm",
        "ihn",
        "sein",
        "seine",
        "dies",
        "dieser",
        "diese",
        "dieses",
        "dabei",
        "dafur",
        "dazu",
        "wahrenddessen",
        "sonst",
        "there",
    ]
)
SUBJECT_ENDS: Final = frozenset(
    [
        "is",
        "are",
        "was",
        "were",
        "be",
        "will",
        "would",
        "shall",
        "can",
        "may",
        "must",
        "should",
        "could",
        "might",
        "has",
        "have",
        "had",
        "do",
        "does",
        "did",
        "cannot",
        "needs",
        "need",
        "gets",
        "get",
        "receives",
        "goes",
        "takes",
        "means",
        "lasts",
        "ist",
        "sind",
        "war",
        "wird",
        "werden",
        "wurde",
        "kann",
        "konnen",
        "darf",
        "durfen",
        "muss",
        "mussen",
        "soll",
        "sollen",
        "hat",
        "haben",
        "gibt",
    ]
)
CONDITIONS: Final = frozenset(
    [
        "if",
        "unless",
        "only",
        "except",
        "excluding",
        "provided",
        "when",
        "whenever",
        "after",
        "before",
        "during",
        "while",
        "without",
        "whoever",
        "those",
        "anyone",
        "wenn",
        "falls",
        "sofern",
        "ausser",
        "nur",
        "ohne",
        "wahrend",
        "nachdem",
        "bevor",
        "solange",
        "wer",
    ]
)
PLACES_IN_TIME: Final = frozenset(
    ["when", "whenever", "after", "before", "during", "while", "wahrend", "nachdem", "bevor", "bei"]
)
STRICT: Final = frozenset(
    [
        "must",
        "required",
        "requires",
        "require",
        "mandatory",
        "need",
        "needs",
        "needed",
        "has",
        "have",
        "had",
        "muss",
        "mussen",
        "erforderlich",
        "zwingend",
    ]
)
WEAK: Final = frozenset(
    [
        "should",
        "may",
        "can",
        "could",
        "might",
        "recommended",
        "optional",
        "optionally",
        "soll",
        "sollte",
        "sollten",
        "sollen",
        "kann",
        "konnen",
        "darf",
        "durfen",
    ]
)
POSSIBLE: Final = frozenset(
    [
        "may",
        "might",
        "could",
        "can",
        "possibly",
        "perhaps",
        "possible",
        "allowed",
        "permitted",
        "able",
        "allows",
        "vielleicht",
        "moglich",
        "moglicherweise",
        "kann",
        "konnen",
        "konnte",
        "konnten",
        "darf",
        "durfen",
        "durfte",
        "erlaubt",
        "lasst",
    ]
)
UNIVERSAL: Final = frozenset(
    [
        "all",
        "every",
        "each",
        "always",
        "any",
        "everybody",
        "everyone",
        "everything",
        "anybody",
        "anyone",
        "whoever",
        "whole",
        "entire",
        "alle",
        "allen",
        "aller",
        "alles",
        "jede",
        "jeder",
        "jedes",
        "jeden",
        "jedem",
        "immer",
        "stets",
        "samtliche",
    ]
)
ONLY: Final = frozenset(["only", "alone", "merely", "solely", "exclusively", "nur", "ausschliesslich", "lediglich"])
SURE: Final = frozenset(["guaranteed", "certainly", "definitely", "surely", "always", "immer", "garantiert", "sicher"])
AT_ONCE: Final = frozenset(["immediately", "instantly", "once", "straightaway", "sofort", "umgehend", "unverzuglich"])
# One that the source has and the sentence lacks makes the sentence stronger. Phrases are of folded words.
HEDGES: Final[dict[str, tuple[str, ...]]] = {
    "typical": (
        "normally", "usually", "typically", "generally", "commonly", "mostly", "often", "in general", "as a rule",
        "normalerweise", "ublicherweise", "meist", "meistens", "in der regel", "gewohnlich", "oft", "haufig", "ofters",
    ),
    "partial": ("sometimes", "occasionally", "partly", "some", "many", "most", "manchmal", "teilweise", "einige",
                "manche",                 "gelegentlich", "viele"),
    "guess": ("probably", "likely", "presumably", "seems", "appears", "apparently", "suspected", "wahrscheinlich",
              "vermutlich", "anscheinend", "scheint"),
    "planned": ("planned", "expected", "intended", "proposed", "proposes", "geplant", "vorgesehen"),
}  # fmt: skip
# The same, of a number that stands at most three words behind.
BOUNDS: Final[dict[str, tuple[str, ...]]] = {
    "most": (
        "up to", "at most", "no more than", "not more than", "no longer than", "maximum", "max", "within",
        "at the latest",
        "or less", "hochstens", "bis zu", "maximal", "innerhalb", "binnen", "spatestens", "nicht mehr als",
    ),
    "least": (
        "at least", "minimum", "no less than", "not less than", "or more", "or later", "mindestens", "wenigstens",
        "minimal", "nicht weniger als", "ab",
    ),
    "about": ("about", "around", "approximately", "roughly", "nearly", "almost", "circa", "ca", "etwa", "ungefahr",
              "rund",               "fast", "approx"),
    "above": ("more than", "above", "over", "longer than", "larger than", "heavier than",
              "higher than", "greater than", "exceeding", "mehr als",
              "uber",               "langer als", "exceeds", "exceed", "older than"),
    "below": ("less than", "below", "under", "fewer than", "shorter than", "smaller than",
              "lighter than", "lower than", "weniger als", "unter",
              "kurzer als", "younger than"),
}  # fmt: skip
_OPPOSITES: Final = """before:after vor:nach vorher:nachher above:below over:under more:less more:fewer mehr:weniger
minimum:maximum least:most mindestens:hochstens larger:smaller longer:shorter older:newer first:last with:without
mit:ohne always:never immer:nie on:off open:closed open:close offen:geschlossen offnen:schliessen allow:forbid
allow:deny allow:prohibit allowed:forbidden allowed:prohibited permitted:forbidden erlaubt:verboten erlauben:verbieten
enable:disable start:stop begin:end add:remove increase:decrease raise:lower accept:reject accept:refuse
accept:decline grant:revoke public:private inbound:outbound read:write success:failure succeed:fail pass:fail
valid:invalid required:optional mandatory:optional inside:outside internal:external left:right up:down higher:lower
online:offline include:exclude included:excluded defined:undefined known:unknown paid:unpaid lock:unlock
safe:unsafe manual:automatic manually:automatically same:different win:lose keep:delete keep:lose kept:lost kept:deleted
encrypted:plain day:night hot:cold wet:dry full:empty hidden:visible early:late earlier:later upper:lower senior:junior
obere:untere an:aus ein:aus innen:aussen erste:letzte steigt:sinkt erhohen:senken aktiv:inaktiv pflicht:freiwillig
morning:evening morning:afternoon am:pm summer:winter north:south east:west faster:slower fast:slow
quicker:slower cheaper:dearer heavier:lighter better:worse longer:shorter bigger:smaller deeper:shallower
rise:fall rose:fell rises:falls grow:shrink except:including excluding:including nord:sud ost:west morgens:abends
schneller:langsamer teurer:billiger schwerer:leichter besser:schlechter oldest:newest fastest:slowest import:export
upload:download immediately:later buy:sell gain:loss temporary:permanent synchronous:asynchronous indoor:outdoor
still:longer"""
_ALIKE: Final = """delete remove erase drop|begin start commence|end finish complete conclude|stop halt cease|
call ring phone telephone|answer reply respond response|mail email|mailed mail|shop store|buy purchase|
change modify alter|create make build|send submit|resend resubmit|show display|error fault failure|problem issue|
fix repair correct|must has have required need|large big|larger bigger above over more|quick fast|allow permit let|
forbid prohibit|expire expiry lapse|need require|get receive obtain|return comeback back come|tell inform notify|
decide determine|choose select pick|employee colleague staff|boss manager lead|close shut|open unlock|keep retain store|
refund reimburse repay|ask request|try attempt|approve approval|immediately once instantly|yearly annual|
below under less fall drop|exceed above over more|wait pause|restart reboot|two both pair|happen occur|
advance ahead before|per each every|max maximum most|min minimum least|whole entire all|
anybody anyone everybody whoever|
nobody none no|person people|contain hold include|sign signature|revoke withdraw|live is stand stay sit|
accept take|refuse reject decline|log record|move relocate shift|cut interrupt|during while|location place|
loschen entfernen|beginnen anfangen starten|enden aufhoren|anrufen telefonieren|antworten beantworten|
mussen sein erforderlich|erhalten bekommen|benotigen brauchen|durfen erlaubt konnen|sofort unverzuglich|
jede jeder jedes alle|mindestens wenigstens|hochstens maximal|falls wenn sofern|use using via with|mean indicate|
cost costs price fee|fall fell fallen|rise rose risen|begin began begun|break broke broken|write wrote written|
take took taken|give gave given|see saw seen|speak spoke spoken|choose chose chosen|drive drove driven|trip travel|
holiday vacation leave|phone telephone|vpn client|raise increase|lower reduce decrease|kill terminate"""

MONTHS: Final = {
    name: number
    for number, names in enumerate(
        ("january jan januar", "february feb februar", "march marz", "april apr", "may mai", "june jun juni",
         "july jul juli",          "august aug", "september sep sept", "october oct oktober okt",
         "november nov", "december dec dezember dez"), 1)
    for name in names.split()
}  # fmt: skip
WEEKDAYS: Final = {
    name: number
    for number, names in enumerate(
        ("monday mondays montag montags", "tuesday tuesdays dienstag dienstags",
         "wednesday wednesdays mittwoch mittwochs",
         "thursday thursdays donnerstag donnerstags", "friday fridays freitag freitags",
         "saturday saturdays samstag samstags", "sunday sundays sonntag sonntags"), 1)
    for name in names.split()
}  # fmt: skip
_DE_PREFIXES: Final = (
    "an",
    "ab",
    "auf",
    "aus",
    "ein",
    "vor",
    "zu",
    "mit",
    "weiter",
    "zuruck",
    "um",
    "nach",
    "her",
    "hin",
)
_TURNING_PREFIXES: Final = frozenset(["un", "in", "im", "ir", "il", "dis", "non", "miss", "mis"])


@lru_cache(maxsize=16_384)
def stem(word: str) -> str:
    """A light stem of a folded word, the same for most forms of an English or German one."""
    if word.isdigit() or len(word) < 4:
        return word
    for prefix in ("", *_DE_PREFIXES):  # gereinigt, angekundigt
        if word.startswith(f"{prefix}ge") and word.endswith(("t", "en")) and len(word) - len(prefix) > 6:
            word = prefix + word[len(prefix) + 2 :]
            break
    for prefix in _DE_PREFIXES:  # anzukundigen
        if word.startswith(f"{prefix}zu") and word.endswith("en") and len(word) - len(prefix) > 7:
            word = prefix + word[len(prefix) + 2 :]
            break
    if len(word) > 5 and word.endswith(("ers", "ens", "ets", "els")):  # tokens as token, orders as order
        word = word[:-1]
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    for end in (
        "ingly",
        "edly",
        "ung",
        "ing",
        "ied",
        "ed",
        "est",
        "end",
        "ern",
        "ly",
        "en",
        "em",
        "er",
        "es",
        "et",
        "st",
    ):
        if word.endswith(end) and len(word) - len(end) >= 3 and any(c in "aeiouy" for c in word[: -len(end)]):
            word = word[: -len(end)] + ("y" if end == "ied" else "")
            break
    else:
        if word[-1] in "esnt" and not word.endswith("ss") and len(word) > 3:
            word = word[:-1]
    if word.endswith(("e", "t")) and len(word) > 4:
        word = word[:-1]
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word


@cache
def _alike() -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for number, group in enumerate(_ALIKE.replace("\n", "").split("|")):
        for word in group.split():
            found.setdefault(stem(word), set()).add(number)
    return {word: frozenset(numbers) for word, numbers in found.items()}


@cache
def _opposites() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for pair in _OPPOSITES.split():
        one, other = pair.split(":")
        found.setdefault(one, set()).add(other)
        found.setdefault(other, set()).add(one)
        found.setdefault(stem(one), set()).add(stem(other))
        found.setdefault(stem(other), set()).add(stem(one))
    return {word: frozenset(others) for word, others in found.items()}


@lru_cache(maxsize=65_536)
def alike(one: str, other: str) -> float:
    """How well one stem stands for another, 0 to 1: equal, synonym, derived form, part of a compound."""
    if one == other:
        return 1.0
    groups = _alike()
    if groups.get(one, frozenset()) & groups.get(other, frozenset()):
        return 0.85
    short, long = sorted((one, other), key=len)
    if len(short) < 4 or turned(one, other):
        return 0.0
    shared = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if shared >= 4 and shared >= 0.75 * len(short) and len(long) - shared <= 4:
        return 0.85
    if len(short) >= 5 and (long.endswith(short) or long.startswith(short)):
        return 0.6
    return 0.0


def opposites(word: str) -> frozenset[str]:
    """The words that say the opposite of a folded one, as far as they are listed."""
    return _opposites().get(word, frozenset())


def opposite(one: str, other: str) -> bool:
    """Whether two folded words, or two stems, say the opposite of one another."""
    return other in _opposites().get(one, frozenset()) or turned(one, other)


def turned(one: str, other: str) -> bool:
    """Whether one word is the other behind a prefix that turns it round: locked, unlocked."""
    short, long = sorted((one, other), key=len)
    return len(short) > 3 and long.endswith(short) and long[: len(long) - len(short)] in _TURNING_PREFIXES
