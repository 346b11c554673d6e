"""The documents: invented handbooks of harbours, pumps and bird stations, one feature after another."""

from __future__ import annotations

from model import C, Cell, Doc, H, Img, Item, L, M, Note, P, Pairs, T, a, b, c, fn, i

GAUGE_CODE = """#!/bin/sh
# read the gauge twice, keep the lower value
for n in 1 2; do
\tgaugectl --port 7 read | tee -a /var/log/gauge.log

\tsleep 5
done


if [ "$?" -ne 0 ]; then
    echo "no answer from gauge 7" >&2
fi"""

PUMP_CODE = '''def pressure(head_m: float, density: float = 998.2) -> float:
    """Pressure at the foot of a column, in Pa."""

    # not a heading, a comment
    if head_m < 0:
        raise ValueError("head_m: must not be negative")

    return density * 9.81 * head_m  # <kg/m^3> & <m>'''

YAML_CODE = """sluice:
  gates:
    - {name: north, width_m: 12.5}
    - {name: south, width_m: 9}

  open_when: "level > 2.40 && wind < 7" """.rstrip()

GAUGE = Doc("gauge", "en", (
    H(1, "Tide gauge handbook"),
    P("The harbour of Ostrand keeps seven tide gauges. Each one is read every ten minutes, and the readings are "
      "compared with the ", a("almanac of the coast office", "https://almanac.example/ostrand/2026"), "."),
    H(2, "Reading a gauge"),
    P("A reading is taken from the float, never from the marks on the wall", fn("The marks were painted before the "
      "quay sank by four centimetres."), ". Use ", c("gaugectl --port 7 read"), " from any terminal on the quay."),
    C("sh", GAUGE_CODE),
    P("If both readings differ by more than ", b("three centimetres"), ", call the watch."),
    H(3, "When the float is stuck"),
    L("Close the upper valve and wait until the needle rests.",
      ("Tap the tube twice, not harder than a knuckle would:", L(
          "once above the inlet,",
          ("once below it, where weed collects;", L("weed is kept in the blue bucket."),),
      )),
      "Open the valve by a quarter turn and read again."),
    Note("warning", "Never open the lower valve at spring tide: the shaft fills within a minute."),
    H(2, "Levels of alarm"),
    P("The watch decides by the table of alarm levels, unless the mayor has closed the harbour before."),
    T([["Level", "Height above datum", "Who is called"],
       ["Amber", "2.10 m", "harbour watch"],
       ["Red", "2.65 m", "harbour watch and pump crew"],
       ["Violet", "3.20 m", "everyone on list Q-17"]], caption="Alarm levels of the inner basin"),
    Img("Photograph of the brass float in its tube", "The float of gauge 7, cleaned in spring", "img/float-7.jpg"),
    H(2, "Keeping the log"),
    P("The log is kept for eleven years. Corrections are struck through and signed; nothing is erased."),
    P("What is not written down did not happen.", kind="quote"),
))

PUMP = Doc("pump", "en", (
    H(1, "Pumping station Kvern"),
    P("Kvern lifts water from the polder into the canal. Its three pumps are called Ada, Berit and Cilla."),
    H(2, "Terms"),
    Pairs(("Head", "the height over which water is lifted, in metres"),
          ("Duty point", "where the curve of the pump meets the curve of the pipe"),
          ("Priming", "filling the casing before the start, except for Cilla, which primes itself")),
    H(2, "Starting order"),
    L("Check that the screen is free of reeds.",
      "Prime Ada and Berit for ninety seconds.",
      "Start Cilla first, because her motor draws the highest current.",
      "Start the others at intervals of one minute.", ordered=True),
    Note("note", "The order was changed after the short circuit of 2019 and is not to be reversed."),
    H(2, "Pressure"),
    P("The pressure at the foot of the riser follows from the head:"),
    M(r"p = \rho g h + \frac{1}{2} \rho v^2"),
    C("python", PUMP_CODE),
    H(2, "Service intervals"),
    H(3, "By pump and season"),
    T([[Cell("Pump", down=2), Cell("Interval in hours", across=2), Cell("Grease", down=2)],
       ["summer", "winter"],
       ["Ada", "400", "650", "G-2"],
       ["Berit", "380", "600", "G-2"],
       [Cell("Cilla runs only in flood", across=3), "G-5"]], caption="Hours between two services", header=2),
    P("After ", i("every"), " service the seal is photographed and the picture is sent to ",
      a("the workshop", "mailto:workshop@kvern.example"), "."),
    C("yaml", YAML_CODE),
    H(4, "Spare parts"),
    P("Parts are ordered by their full number: KV-300/2 is a seal, KV-300/21 is a bearing."),
))

VOGEL = Doc("vogel", "de", (
    H(1, "Vogelwarte Süderöög"),
    P("Die Warte zählt seit 1931 Zugvögel. Gezählt wird bei jedem Wetter, außer bei Nebel über dem Priel."),
    H(2, "Zählgänge im Frühjahr"),
    P("Ein Zählgang dauert fünfzig Minuten und beginnt am Leuchtfeuer. Die Strecke steht in der ",
      a("Karte der Zählstrecken", "https://karten.example/süd"), "."),
    L("Fernglas und Zählbuch mitnehmen", "Möwen nur in Gruppen über zwanzig zählen",
      ("Unsichere Arten mit Fragezeichen notieren", L("niemals raten", "später gemeinsam nachsehen"))),
    H(2, "Ergebnisse"),
    T([["Art", "März", "April", "Größter Trupp"],
       ["Austernfischer", "1.204", "1.377", "310"],
       ["Alpenstrandläufer", "8.950", "12.400", "4.100"],
       ["Löffler", "12", "35", "9"]], caption="Summen je Monat"),
    P("Wer eine Möwe beringt, schreibt die Nummer zweimal.", kind="quote"),
    H(2, "Beringung"),
    P("Ringe der Größe 4 passen Löfflern", fn("Nicht für Jungvögel unter drei Wochen."), "; kleinere Ringe werden nicht mehr ausgegeben."),
))

TONGUES = Doc("tongues", "mul", (
    H(1, "Notices at the ferry pier"),
    H(2, "Русский"),
    P("Паром отходит каждый час. Собаки должны быть на поводке, кроме служебных."),
    H(2, "Ελληνικά"),
    P("Το πλοίο φεύγει κάθε ώρα. Τα εισιτήρια πωλούνται μόνο στην αποβάθρα."),
    H(2, "日本語"),
    P("渡し船は一時間ごとに出発します。自転車は後ろの甲板に置いてください。"),
    H(2, "中文"),
    P("渡轮每小时开出一班，大风时停航，请留意码头的红旗。"),
    H(2, "עברית"),
    P("המעבורת יוצאת בכל שעה עגולה. אין כניסה לכלבים ללא רצועה."),
    H(2, "العربية"),
    P("تغادر العبارة كل ساعة، ولا تباع التذاكر على متنها."),
    H(2, "ไทย"),
    P("เรือข้ามฟากออกทุกชั่วโมง โปรดรอที่ท่าเรือ"),
    H(2, "Français"),
    P("Le bac part à l'heure pile, sauf en cas de tempête annoncée par le sémaphore."),
    T([["Langue", "Départ", "Prix"], ["Français", "toutes les heures", "3,50 €"], ["Ελληνικά", "κάθε ώρα", "3,50 €"]]),
))

LEDGER = Doc("ledger", "en", (
    H(1, "Ledger of the rope works"),
    P("The rope works of Tarn write one line a delivery. Weights are in kilograms, lengths in fathoms."),
    H(2, "Deliveries"),
    T([["No.", "Ship", "Rope", "Fathoms", "Weight", "Remark"],
       *[[f"TN-{1000 + n * 7}", ship, rope, str(40 + n * 3), f"{(40 + n * 3) * 1.25:.2f}", remark]
         for n, (ship, rope, remark) in enumerate(zip(
             ["Alca", "Brant", "Crex", "Dovekie", "Eider", "Fulmar", "Gannet", "Harle", "Ibis", "Jaeger", "Knot", "Lark"] * 2,
             ["hemp 12", "hemp 16", "sisal 9", "wire 22", "hemp 12", "manila 14"] * 4,
             ["", "tarred", "returned once", "", "paid in salt", "sample, not for sale"] * 4))]],
      caption="Deliveries of the first quarter"),
    H(2, "Who may sign"),
    T([["Sum", "Signature"], ["below 500", "foreman"], ["500 and more", "foreman and clerk, unless one is away"]]),
    P("Lines that were cancelled keep their number."),
))

BRIEF = Doc("brief", "en", (
    H(1, "Report on the northern sluice"),
    P("The northern sluice was inspected on the ninth of May. Both gates close within forty seconds, and no leak was "
      "found below the waterline. The hinges of the western gate have worn by two millimetres since last year."),
    H(2, "What must be done"),
    L("Grease the hinges before the autumn storms.", "Order a new lamp for the signal mast.",
      "Paint the inner wall, except the measuring scale."),
    P("The next inspection follows in March. Until then the keeper reads the scale every morning and writes the "
      "height into the grey book."),
    H(2, "Costs"),
    P("Grease and paint cost about four hundred crowns. The lamp is paid by the lighthouse board."),
))

MEMO = Doc("memo", "en", (
    H(1, "Night shifts at the ice house"),
    P("From the first of June two people work every night. One of them stays beside the compressor, the other walks "
      "round the store once an hour and notes the temperature of all nine doors."),
    P("Nobody enters the brine room alone, unless the alarm has been switched off at the desk."),
    L("Keys hang behind the desk.", "Gloves are in the third drawer.", "Coffee is free after midnight."),
))

DOCS = {doc.name: doc for doc in (GAUGE, PUMP, VOGEL, TONGUES, LEDGER, BRIEF, MEMO)}
__all__ = ["DOCS", "Item"]
