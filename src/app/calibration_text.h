// The text whose keys decide a model's key scales. It is part of the program and not of anyone's
// memory, so that scales tell nothing about users, are there before the first fact, and come out
// the same whenever they are made again. It is as mixed as memories are: talk, notes, numbers,
// names, code and several scripts.
#ifndef INFERSCALE_APP_CALIBRATION_TEXT_H_
#define INFERSCALE_APP_CALIBRATION_TEXT_H_

#include <string_view>

namespace inferscale {

// NOLINTBEGIN(bugprone-suspicious-missing-comma): a text goes on over several lines.
inline constexpr std::string_view kCalibrationText[] = {
    "[3 January 2024] Mira: Hi Jonas! The move is finally over. We live on the fourth floor now, "
    "Elm Street 27, and the lift has been out of order since Monday.\n",
    "[3 January 2024] Jonas: Congratulations! I'll bring the old sofa on Saturday around 10:30, if "
    "my brother lends me his van. Does your sister still have the blue carpet?\n",
    "[4 January 2024] Mira: She does, but her dog chewed off a corner :) By the way, I've started "
    "the new job at the harbour office. My boss is called Dr. Okonkwo-Lindqvist.\n",
    "[11 February 2024] Sam: I am allergic to peanuts and penicillin. Blood type: AB negative. "
    "Emergency contact: Priya, +44 20 7946 0018.\n",
    "[12 February 2024] Priya: Reminder - dentist on Thursday the 22nd at 8:15 a.m., then piano "
    "lesson, then the parents' evening. Don't forget the forms!!!\n",
    "Grandmother's pancakes: 250 g flour, 3 eggs, half a litre of milk, a pinch of salt, butter. "
    "Let "
    "the batter rest for twenty minutes; the first one always goes wrong.\n",
    "[30 March 2024] Wei: I finished the marathon in 4:07:39, which is eleven minutes better than "
    "last year. My left knee hurts, though, and the doctor says six weeks without running.\n",
    "[30 March 2024] Lena: That's incredible, Wei! Remember when you couldn't run to the bus stop? "
    "Next time I'm coming with you, even if I have to walk the last ten kilometres.\n",
    "The user prefers short answers, metric units and the 24-hour clock. He writes Python and Rust "
    "at work, dislikes meetings before nine, and is learning the cello.\n",
    "def mean(values):\n    total = 0.0\n    for i, v in enumerate(values):\n        total += v\n  "
    "  "
    "return total / max(1, len(values))  # empty -> 0\n",
    "SELECT name, COUNT(*) AS visits FROM guests WHERE city != 'Porto' GROUP BY name HAVING visits "
    "> "
    "3 ORDER BY visits DESC LIMIT 20;\n",
    "{\"order\": 48213, \"items\": [{\"sku\": \"TX-900\", \"qty\": 2}, {\"sku\": \"B7\", \"qty\": "
    "15}], "
    "\"paid\": true, \"total\": 1289.5, \"note\": null}\n",
    "https://example.org/path/to/page?id=7f3a&lang=en#section-2 ; mail: first.last@example.com ; "
    "C:\\Users\\guest\\notes.txt ; v2.10.3-rc1 ; 0xDEADBEEF ; 3.14159265\n",
    "[5 Mai 2024] Anna: Am Wochenende fahren wir nach Görlitz, meine Eltern haben goldene "
    "Hochzeit. "
    "Könntest du bitte die Blumen gießen und die Katze füttern?\n",
    "[6 mai 2024] Chloé : J'ai réservé une table pour sept personnes à vingt heures. Mon frère est "
    "végétarien, et la petite ne mange pas de fromage.\n",
    "[9 de junio] Diego: ¿Te acuerdas del perro que encontramos? Ya tiene dueño: mi vecina, la que "
    "vive enfrente de la panadería, lo llama Trueno.\n",
    "[10 июня] Олег: Завтра утром я лечу в Казань, вернусь в пятницу. Ключи лежат у соседки.\n",
    "[六月十二日] 小林: 来週の土曜日に引っ越します。新しい家は駅から歩いて五分です。\n",
    "[6月15日] 王芳: 我儿子今年九月上小学，他喜欢恐龙和游泳，不喜欢胡萝卜。\n",
    "[١٦ يونيو] ليلى: أعمل طبيبة في المستشفى منذ ثلاث سنوات وأحب القهوة بلا سكر.\n",
    "[20 जून] रवि: मेरी बहन की शादी दिसंबर में जयपुर में है।\n",
    "[1 July 2024] Tom: lol ok 👍 see u at 7?? bring snacks 🍕🍿 & ur charger pls\n",
    "[1 July 2024] Ruth: I'd rather not. Honestly, after what happened at the reunion, I need some "
    "time for myself; I've been painting again, mostly the sea, mostly at night.\n",
    "Meeting notes, Q3: (1) budget cut by 12.5 %; (2) hire two engineers by 15 October; (3) the "
    "vendor's offer of EUR 84,300 is too high -> negotiate; (4) next review: 2024-09-30, room "
    "B-114.\n",
    "In 1911 the expedition left two sledges at 79 degrees south. What the men had not understood "
    "was that the depot's flags, once covered by snow, could not be seen from more than a mile.\n",
    "According to the contract, the tenant shall give notice no later than three (3) months before "
    "the end of the term, failing which the agreement is renewed for one further year.\n",
    "Let f(x) = 3x^2 - 7x + 2. Its roots are x = 2 and x = 1/3, so f(x) < 0 exactly when 1/3 < x < "
    "2; "
    "the vertex lies at x = 7/6.\n",
    "A: Why did you leave the orchestra? B: Because of my hand. A: And now? B: Now I teach. The "
    "children are terrible, and I've never been happier.\n",
    "Shopping: oat milk; 2x AA batteries; lightbulb (E14, warm); birthday card for Noor, she's "
    "turning 30; cat food - NOT the salmon one; stamps; thyme.\n",
    "[14 August 2024] Kwame: We named her Adjoa Elisabeth. 3,420 grams, born at 05:52. Both are "
    "healthy and I have not slept for two days.\n",
    "[15 August 2024] Ingrid: Oh how wonderful! I'm knitting something yellow already. Tell Esi "
    "that "
    "the cradle from Uppsala is hers if she wants it.\n",
    "The printer on the second floor shows error E-5017. Turning it off and on helped once, on "
    "Tuesday; replacing the drum did not. The serial number is KX40-77B-00912.\n",
    "[2 September 2024] Assistant: You told me last spring that you wanted to read more novels. "
    "You "
    "have finished four since then; the one you liked best was about a lighthouse keeper.\n",
    "[2 September 2024] User: Right, and I still haven't called my father. Remind me on Sunday, "
    "please, but not before noon, he sleeps late since he retired from the railway.\n",
    "Favourite things: films without explosions, trains, rain on a tent, the number 17, black "
    "liquorice, Schubert, maps; hates: coriander, small talk, escalators, the word \"moist\".\n",
    "no no no no no no yes yes yes ... ... ... !!!! ---- ==== 1 2 3 4 5 6 7 8 9 10 11 12\n",
};
// NOLINTEND(bugprone-suspicious-missing-comma)

}  // namespace inferscale

#endif  // INFERSCALE_APP_CALIBRATION_TEXT_H_
