"""Fixed words of answers by language: the refusal, why there is no answer and what to try, and small phrases.

Reasons are told in the reader's language where it is English, German, French or Spanish, else in English: a refusal is
one sentence that is easily translated well, advice is not.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from schemas.api_answer import Refused

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier  # type: ignore[import-untyped]

REFUSAL = "The available documentation does not contain sufficient information to answer this question."
_REFUSALS = {
    "en": REFUSAL,
    "de": "Die verfügbare Dokumentation enthält nicht genügend Informationen, um diese Frage zu beantworten.",
    "fr": "La documentation disponible ne contient pas suffisamment d’informations pour répondre à cette question.",
    "es": "La documentación disponible no contiene información suficiente para responder a esta pregunta.",
    "it": "La documentazione disponibile non contiene informazioni sufficienti per rispondere a questa domanda.",
    "nl": "De beschikbare documentatie bevat onvoldoende informatie om deze vraag te beantwoorden.",
    "pt": "A documentação disponível não contém informações suficientes para responder a esta pergunta.",
    "pl": "Dostępna dokumentacja nie zawiera wystarczających informacji, aby odpowiedzieć na to pytanie.",
    "sv": "Den tillgängliga dokumentationen innehåller inte tillräckligt med information för att besvara den här "
    "frågan.",
    "da": "Den tilgængelige dokumentation indeholder ikke tilstrækkelige oplysninger til at besvare dette spørgsmål.",
    "no": "Den tilgjengelige dokumentasjonen inneholder ikke tilstrekkelig informasjon til å besvare dette spørsmålet.",
    "fi": "Saatavilla olevassa dokumentaatiossa ei ole riittävästi tietoa tähän kysymykseen vastaamiseksi.",
    "cs": "Dostupná dokumentace neobsahuje dostatek informací k zodpovězení této otázky.",
    "sk": "Dostupná dokumentácia neobsahuje dostatok informácií na zodpovedanie tejto otázky.",
    "hu": "A rendelkezésre álló dokumentáció nem tartalmaz elegendő információt a kérdés megválaszolásához.",
    "ro": "Documentația disponibilă nu conține suficiente informații pentru a răspunde la această întrebare.",
    "el": "Η διαθέσιμη τεκμηρίωση δεν περιέχει επαρκείς πληροφορίες για να απαντηθεί αυτή η ερώτηση.",
    "tr": "Mevcut belgeler bu soruyu yanıtlamak için yeterli bilgi içermiyor.",
    "ru": "Доступная документация не содержит достаточной информации для ответа на этот вопрос.",
    "uk": "Доступна документація не містить достатньої інформації для відповіді на це запитання.",
    "ar": "لا تحتوي الوثائق المتاحة على معلومات كافية للإجابة عن هذا السؤال.",
    "he": "התיעוד הזמין אינו מכיל מידע מספיק כדי לענות על השאלה הזו.",
    "ja": "利用可能なドキュメントには、この質問に答えるための十分な情報が含まれていません。",
    "zh": "现有文档中没有足够的信息来回答这个问题。",
    "zh-hant": "現有文件中沒有足夠的資訊來回答這個問題。",
    "ko": "제공된 문서에는 이 질문에 답하기에 충분한 정보가 없습니다.",
}
_SAME = {"nb": "no", "nn": "no"}
_TRADITIONAL = ("zh-tw", "zh-hk", "zh-mo", "zh-hant")

# What is missing may as well not exist: nothing here says whether there are documents that the reader may not see.
_DETAILS: dict[str, dict[Refused, str]] = {
    "en": {
        "nothing_found": "Nothing was found for this question. Try other words, the exact name or code, or fewer "
            "filters.",
        "weak_evidence": "What was found has too little to do with this question. Ask more precisely, or use the words "
        "that the documentation would use.",
        "stale": "The sources are not up to date far enough for what was asked. Try again in a moment, or allow older "
        "content.",
        "unsupported": "What was found does not clearly answer this question. Ask for one thing at a time, or look at "
        "the search results.",
        "contradictory": "The sources contradict each other on this question. Look at them side by side, and ask who "
        "keeps them.",
    },
    "de": {
        "nothing_found": "Zu dieser Frage wurde nichts gefunden. Versuchen Sie es mit anderen Wörtern, dem genauen "
            "Namen "
        "oder Code oder weniger Filtern.",
        "weak_evidence": "Was gefunden wurde, hat zu wenig mit dieser Frage zu tun. Fragen Sie genauer oder mit den "
        "Wörtern, die in der Dokumentation stehen könnten.",
        "stale": "Die Quellen sind nicht so aktuell, wie es verlangt wurde. Versuchen Sie es gleich noch einmal oder "
        "lassen Sie ältere Inhalte zu.",
        "unsupported": "Was gefunden wurde, beantwortet diese Frage nicht eindeutig. Fragen Sie nach einer Sache auf "
        "einmal oder sehen Sie sich die Suchergebnisse an.",
        "contradictory": "Die Quellen widersprechen sich in dieser Frage. Vergleichen Sie sie und fragen Sie, wer sie "
        "pflegt.",
    },
    "fr": {
        "nothing_found": "Rien n’a été trouvé pour cette question. Essayez d’autres mots, le nom ou le code exact, ou "
        "moins de filtres.",
        "weak_evidence": "Ce qui a été trouvé a trop peu de rapport avec cette question. Précisez-la, ou employez "
            "les mots "
        "que la documentation emploierait.",
        "stale": "Les sources ne sont pas assez à jour pour cette demande. Réessayez dans un instant, ou acceptez un "
        "contenu plus ancien.",
        "unsupported": "Ce qui a été trouvé ne répond pas clairement à cette question. Demandez une chose à la "
            "fois, ou "
        "consultez les résultats de la recherche.",
        "contradictory": "Les sources se contredisent sur cette question. Comparez-les et demandez à qui les tient "
            "à jour.",
    },
    "es": {
        "nothing_found": "No se encontró nada para esta pregunta. Pruebe con otras palabras, con el nombre o código "
            "exacto, "
        "o con menos filtros.",
        "weak_evidence": "Lo que se encontró tiene muy poco que ver con esta pregunta. Precísela, o use las "
            "palabras que "
        "usaría la documentación.",
        "stale": "Las fuentes no están tan al día como se pidió. Inténtelo de nuevo en un momento, o admita "
            "contenido más "
        "antiguo.",
        "unsupported": "Lo que se encontró no responde con claridad a esta pregunta. Pregunte una sola cosa a la "
            "vez, o "
        "consulte los resultados de la búsqueda.",
        "contradictory": "Las fuentes se contradicen en esta pregunta. Compárelas y consulte a quien las mantiene.",
    },
}  # fmt: skip


@dataclass(frozen=True)
class Phrases:
    """What stands before sentences of an answer."""

    disagree: str  # two sides follow
    unsure: str  # a qualified sentence follows


_PHRASES = {
    "en": Phrases("Sources disagree:", "Not stated plainly:"),
    "de": Phrases("Die Quellen widersprechen sich:", "Nicht ausdrücklich gesagt:"),
    "fr": Phrases("Les sources se contredisent :", "Pas dit clairement :"),
    "es": Phrases("Las fuentes se contradicen:", "No se dice claramente:"),
    "it": Phrases("Le fonti sono in disaccordo:", "Non detto chiaramente:"),
    "nl": Phrases("De bronnen spreken elkaar tegen:", "Niet duidelijk vermeld:"),
    "pt": Phrases("As fontes contradizem-se:", "Não dito claramente:"),
    "pl": Phrases("Źródła są sprzeczne:", "Nie powiedziano tego wprost:"),
    "sv": Phrases("Källorna motsäger varandra:", "Inte tydligt angivet:"),
    "da": Phrases("Kilderne modsiger hinanden:", "Ikke klart angivet:"),
    "cs": Phrases("Zdroje si odporují:", "Není řečeno výslovně:"),
    "ru": Phrases("Источники противоречат друг другу:", "Прямо не сказано:"),
    "uk": Phrases("Джерела суперечать одне одному:", "Прямо не сказано:"),
    "tr": Phrases("Kaynaklar birbiriyle çelişiyor:", "Açıkça belirtilmemiş:"),
    "ja": Phrases("情報源が矛盾しています:", "明記されていません:"),
    "zh": Phrases("来源相互矛盾:", "未明确说明:"),
    "zh-hant": Phrases("來源相互矛盾:", "未明確說明:"),
    "ko": Phrases("출처가 서로 다릅니다:", "명확하게 언급되지 않음:"),
}


def refusal(language: str | None) -> str:
    """The refusal in a language (BCP 47), English where it is unknown or not spoken here."""
    return _REFUSALS.get(_spoken(language), REFUSAL)


def is_refusal(text: str) -> bool:
    """Whether a text is the refusal in any language, however it is quoted, spaced, or marked with footnotes."""
    return _bare(text) in _known()


def detail(reason: Refused, language: str | None) -> str:
    """Why there is no answer, and what to try. The same whether or not something is hidden from the reader."""
    return _DETAILS.get(_spoken(language), _DETAILS["en"])[reason]


def phrases(language: str | None) -> Phrases:
    """In a language, English where there are none."""
    return _PHRASES.get(_spoken(language), _PHRASES["en"])


def languages() -> tuple[str, ...]:
    """Those in which a refusal can be said."""
    return tuple(_REFUSALS)


def _spoken(language: str | None) -> str:
    tag = (language or "en").strip().lower().replace("_", "-")
    if tag.startswith(_TRADITIONAL):
        return "zh-hant"
    primary = tag.split("-")[0]
    return _SAME.get(primary, primary)


def _bare(text: str) -> str:
    """Letters alone: marks, spaces and quotes differ by writer, footnotes are no part of it."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("ı", "i")
    while (begin := folded.find("[^")) >= 0 and (end := folded.find("]", begin)) >= 0:
        folded = folded[:begin] + folded[end + 1 :]
    return "".join(char for char in folded if unicodedata.category(char)[0] in "LM")


@cache
def _known() -> frozenset[str]:
    return frozenset(_bare(text) for text in _REFUSALS.values())


# ---------------------------------------------------------------- the question's language

LEAST = 12  # letters of a question without which nothing is guessed
_SURE = 0.9
_LONG = 60  # letters from which a language without small words of its own is believed
# Small words that a question can hardly do without. One that two languages share counts for both, and settles nothing.
_SMALL = {
    language: frozenset(words.split())
    for language, words in {
        "en": "the is are what which how when who why where does do can may must of to for with and my our your an "
        "in on at "
        "be was were have has much many long often from should would this that it",
        "de": "der die das ist sind was welche welcher welches wie wann wer warum wo wohin kann darf muss und für "
        "mit ich "
        "wir ein eine einen dem den des nicht von zu zum zur im auf viel viele lange oft wird werden wozu bei je "
        "vor durch",
        "fr": "le la les est sont quel quelle quels quelles comment quand qui pourquoi où combien peut doit et pour "
        "avec je "
        "nous un une du des ne pas dans de faut il que au aux sur hors",
        "es": "el la los las es son qué cuál cuáles cómo cuándo quién quiénes dónde cuánto cuánta cuántos puede "
        "debe y para "
        "con yo un una del no en de hay por llevar se lo",
        "it": "il lo la gli è sono che quale quali come quando chi perché dove quanto quanti può deve e per con un "
        "una del "
        "della di non si nel nella",
        "nl": "de het is zijn wat welke hoe wanneer wie waarom waar kan mag moet en voor met ik wij een van niet "
        "hoeveel "
        "worden wordt in op",
        "pt": "o a os as é são que qual quais como quando quem onde quanto quantos pode deve e para com um uma do "
        "da não em "
        "por no na",
        "pl": "jest są co jaki jaka jakie jak kiedy kto dlaczego gdzie ile może trzeba i dla z nie czy w na do się",
        "sv": "är vad vilken vilket vilka hur när vem varför var kan får måste och för med jag vi en ett inte av "
        "det den i "
        "på som många",
        "da": "er hvad hvilken hvilket hvilke hvordan hvornår hvem hvorfor hvor kan må skal og for med jeg vi en et "
        "ikke af "
        "det den i på som mange",
        "cs": "je jsou co jaký jaká jaké jak kdy kdo proč kde kolik může musí a pro s se v na do nebo ne",
        "tr": "nedir ne nasıl zaman kim neden nerede kaç ve için ile mi mı mu mü bir bu hangi",
        "fi": "on ovat mikä mitä miten milloin kuka miksi missä kuinka voi ja tai ei kanssa montako saako",
        "hu": "a az mi hogyan mikor ki miért hol hány lehet és vagy nem kell van egy",
        "ru": "что как когда кто почему зачем где сколько какой какая какие можно нужно нужен нужна должен должна если "
        "пропало с и в на не для это есть ли по до от",
        "uk": "що як коли хто чому навіщо де скільки який яка які можна потрібно потрібен повинен якщо з і в на не "
        "для це "
        "є чи по до від",
        "ro": "este sunt ce care cum când cine unde cât poate trebuie și pentru cu nu din în la o un",
    }.items()
}


def language_of(question: str) -> str | None:
    """BCP 47 language of a question; None where it is too short or in doubt, which stands for English.

    Questions are short, and a model of languages is often sure and wrong about ten words with a name and a code among
    them. So small words decide, as far as one language has more of them than any other; the model, among the languages
    of the refusal, where none has any.
    """
    letters = [char for char in question if char.isalpha()]
    script = _by_script(letters)
    if script is not None:
        return script
    if len(letters) < LEAST:
        return None
    words = [word.strip(".,;:!?¿¡()\"'«»„“”") for word in question.casefold().replace("’", "'").split()]
    words += [part for word in words if "'" in word for part in word.split("'")]
    counts = {language: sum(word in small for word in words) for language, small in _SMALL.items()}
    best = max(counts.values())
    first = [language for language, count in counts.items() if count == best]
    if best >= 2 and len(first) == 1:
        return first[0]
    return _guessed(question, letters, first if best else list(_SMALL))


def _guessed(question: str, letters: list[str], among: list[str]) -> str | None:
    """What the model says, believed where small words do not speak against it."""
    cyrillic = sum("\u0400" <= char <= "\u04ff" for char in letters) * 2 > len(letters)
    language, confidence = _identifier().classify(question.casefold())
    if confidence < _SURE:
        return None
    if cyrillic:
        return str(language) if language in ("ru", "uk") else None
    return str(language) if language in among and (len(among) < len(_SMALL) or len(letters) >= _LONG) else None


def _by_script(letters: list[str]) -> str | None:
    """Of scripts that one language of the refusal is written in."""
    ranges = {
        "ja": ("\u3041", "\u30ff"), "ko": ("\uac00", "\ud7a3"), "zh": ("\u4e00", "\u9fff"), "el": ("\u0370", "\u03ff"),
        "he": ("\u0590", "\u05ff"), "ar": ("\u0600", "\u06ff"),
    }  # fmt: skip
    counts = {name: sum(low <= char <= high for char in letters) for name, (low, high) in ranges.items()}
    if counts["ja"]:  # Japanese mixes both scripts
        counts["ja"], counts["zh"] = counts["ja"] + counts["zh"], 0
    best = max(counts, key=lambda name: counts[name])
    # a letter of Han or Hangul says as much as several of an alphabet
    weight = 3 if best in ("ja", "ko", "zh") else 1
    if counts[best] * weight * 2 <= len(letters) or counts[best] * weight < 4:
        return None
    if best == "ar" and any(char in "پچژگ" for char in letters):  # Persian or Urdu, in which nothing is said here
        return None
    return best


@cache
def _identifier() -> LanguageIdentifier:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    made = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    made.set_languages(sorted({name for name in _REFUSALS if "-" not in name}))
    return made
