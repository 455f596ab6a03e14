// What the quality gate measures with: forty made-up turns of five people who do not exist, and
// questions about them. A verdict is about exactly these words: who changes them raises kGateText.
#ifndef INFERSCALE_APP_GATE_TEXT_H_
#define INFERSCALE_APP_GATE_TEXT_H_

#include <array>
#include <cstdint>
#include <string_view>

namespace inferscale {

inline constexpr uint64_t kGateText = 1;

struct GateTurn {
  std::string_view run;
  uint32_t day = 0;  // after 1 March 2024
  std::string_view speaker;
  std::string_view text;
};

inline constexpr std::array kGateTurns = {
    GateTurn{"allotment", 1, "Mirela", "The council finally gave us plot 27, right by the canal."},
    GateTurn{"allotment", 1, "Oskar", "Is that the one with the crooked pear tree and no shed?"},
    GateTurn{"allotment", 1, "Mirela", "Yes. My uncle Stefan has promised to build a shed in May."},
    GateTurn{"allotment", 3, "Oskar",
             "I can lend you my wheelbarrow, the green one with two wheels."},
    GateTurn{"allotment", 3, "Mirela", "Great. On Sunday I want to plant garlic and broad beans."},
    GateTurn{"allotment", 9, "Oskar",
             "A badger dug up half of my carrots, so put a fence around it."},
    GateTurn{"allotment", 9, "Mirela", "The fence costs 84 euros, and Stefan pays half of that."},
    GateTurn{"allotment", 16, "Oskar", "My knee hurts again, so I will not dig before April."},
    GateTurn{"bakery", 4, "Yusuf", "I start at the bakery in Harbour Street on Monday, at four."},
    GateTurn{"bakery", 4, "Ines", "Four in the morning? You used to sleep until ten!"},
    GateTurn{"bakery", 5, "Yusuf",
             "The owner, Mrs. Lindqvist, bakes everything with rye from Gotland."},
    GateTurn{"bakery", 11, "Ines", "How was the first week? Did you burn anything?"},
    GateTurn{"bakery", 11, "Yusuf", "Only a tray of cinnamon buns, and I cut my thumb on a tin."},
    GateTurn{"bakery", 18, "Yusuf", "From now on I make the sourdough; they call my starter Otto."},
    GateTurn{"bakery", 18, "Ines", "Bring me a loaf on Thursday, my mother visits from Porto."},
    GateTurn{"bakery", 25, "Yusuf", "Mrs. Lindqvist wants to open a second shop in the station."},
    GateTurn{"boat", 2, "Tomasz", "I bought a wooden dinghy for 900 euros; her name is Petrel."},
    GateTurn{"boat", 2, "Ines", "Does she float, or is she like the kayak you had?"},
    GateTurn{"boat", 2, "Tomasz", "She leaks a little at the stern, but the mast is from 2019."},
    GateTurn{"boat", 8, "Ines", "My cousin Rafael repairs hulls in the yard behind the mill."},
    GateTurn{"boat", 8, "Tomasz", "I rang Rafael, and he can look at her on the 22nd."},
    GateTurn{"boat", 23, "Tomasz", "Rafael found a rotten plank and wants 250 euros for the work."},
    GateTurn{"boat", 23, "Ines", "Paint her blue, then you will find her in the fog."},
    GateTurn{"boat", 30, "Tomasz", "She is blue now, and on Saturday we sail to Seal Island."},
    GateTurn{"choir", 6, "Mirela", "Our choir sings in the old fire station, every Wednesday."},
    GateTurn{"choir", 6, "Yusuf", "I sang bass at school, but I can't read notes at all."},
    GateTurn{"choir", 6, "Mirela",
             "Neither can half of us. Our conductor, Bettina, hums it to you."},
    GateTurn{"choir", 13, "Yusuf", "I liked it, though the song in Finnish made my head spin."},
    GateTurn{"choir", 20, "Mirela", "The concert is on 9 June, in the botanical garden."},
    GateTurn{"choir", 20, "Yusuf", "I asked for that evening off and swapped with Henrik."},
    GateTurn{"choir", 27, "Mirela", "Bettina has a cold, so next week we only drink tea."},
    GateTurn{"choir", 27, "Yusuf", "Then I bring a poppy seed cake from the bakery."},
    GateTurn{"school", 7, "Oskar", "My daughter Leni wants to study geology in Trondheim."},
    GateTurn{"school", 7, "Tomasz", "Geology? She was afraid of caves when she was little."},
    GateTurn{"school", 7, "Oskar",
             "Now she collects fossils; her best one is an ammonite from Dorset."},
    GateTurn{"school", 14, "Tomasz",
             "My nephew studied there and rented a room above a bicycle shop."},
    GateTurn{"school", 14, "Oskar", "Leni needs 1,200 euros for the summer course in Iceland."},
    GateTurn{"school", 21, "Tomasz", "She could paint my boat, I would pay her for two days."},
    GateTurn{"school", 28, "Oskar", "The university has accepted her; term begins on 19 August."},
    GateTurn{"school", 28, "Tomasz", "Then we celebrate on the Petrel, if she still floats."},
};

inline constexpr std::array<std::string_view, 12> kGateQuestions = {
    "Which plot did Mirela get, and where is it?",
    "Who builds the shed for Mirela?",
    "What did the badger do to Oskar?",
    "When does Yusuf start to work in the morning?",
    "What is the name of Yusuf's sourdough starter?",
    "Where does Mrs. Lindqvist want to open a second shop?",
    "What is Tomasz's boat called, and what did it cost?",
    "Who repairs the boat, and what did he find?",
    "Where and on which day of the week does the choir sing?",
    "When is the choir's concert?",
    "What does Leni want to study, and where?",
    "Which fossil is the best one that Leni has?",
};

}  // namespace inferscale

#endif  // INFERSCALE_APP_GATE_TEXT_H_
