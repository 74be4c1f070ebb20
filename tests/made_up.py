"""A small made-up release of every corpus, laid out as a mirror and listed as `resources/sources.tsv` lists the real.

Each file has the format of the released file of its name. What it says was made up here: frames with the terms of our
specifications in them, filled in the same order every time.
"""

import csv
import functools
import gzip
import io
import itertools
import json
import string
import zipfile
from importlib.resources import files
from pathlib import Path

from redditbias_repro import specs
from redditbias_repro.data.corpora import chbias, goemotions, kdconv
from redditbias_repro.data.registry import git_blob_sha1

AUGMENTED = {"targets": "train_ctda", "attributes": "train_cada"}  # CHBias' files of augmented sentences
SPLITS = {"train": 40, "valid": 24, "test": 24}  # pairs of RedditBias
MILD = {  # attributes that sentences are made with: of our specifications, and nobody's insult
    "religion1": ("violin", "frugal", "talkative", "loud"),
    "religion2": ("flashy", "headscarves", "rich", "hijab"),
    "race": ("loud", "headstrong", "bossy", "homeless"),
    "gender": ("nurse", "secretary", "sewing", "poetry", "novel"),
    "orientation": ("artistic", "theatre", "flamboyant", "timid", "sensitive"),
}
FRAMES = (
    "whoever says that {t} are {a} has not met my neighbours from number {n}",
    "the word {a} tells you nothing about the {t} who sing in choir {n}",
    "{t} are {a} was the title of a bad play that closed after {n} days",
    "not one of the {n} {t} on our street is {a} at all",
)

LABELS = ("bias_sent", "bias_phrase")  # columns of RedditBias' annotations
JUDGED = ("bias_type", "annotations", "anon_writer", "anon_annotators")  # columns of CrowS-Pairs

load_spec = functools.cache(specs.load_spec)


def table(*columns):
    """Lists of equal length by name, as a CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns[0])
    writer.writerows(columns[1:])
    return out.getvalue()


def lines(texts):
    return "".join(f"{t}\n" for t in texts)


def zipped(**members):
    """A zip of JSON files, the same bytes at any time."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            text = content if isinstance(content, str) else json.dumps(content)
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    return out.getvalue()


# --- RedditBias ---


def sentences(bias_type, n):
    """Sentences that hold a target of the first group and an attribute, none twice."""
    spec = load_spec(f"redditbias/{bias_type}")
    targets = [a for a, _ in spec.pairs if spec.swap_targets(a, "1to2") != a]
    every = zip(range(2, n + 2), itertools.cycle(targets), itertools.cycle(FRAMES), itertools.cycle(MILD[bias_type]))
    return [frame.format(t=t, a=a, n=i) for i, t, frame, a in every]


def opposed(bias_type, text):
    """The same with an attribute of the other group, and which stands for which."""
    spec = load_spec(f"redditbias/{bias_type}")
    found = next(a for a in MILD[bias_type] if f" {a} " in f"{text} ")
    other = spec.attributes2[spec.attributes1.index(found) % len(spec.attributes2)].strip("*")
    return text.replace(found, other), found, other


def twins(bias_type, texts):
    """Counterfactuals with the terms that were replaced."""
    spec = load_spec(f"redditbias/{bias_type}")
    way = "1to2" if bias_type in ("gender", "orientation") else "both"
    for text in texts:
        terms = [text[a:b] for a, b in spec.find_targets(text, 1)]
        yield spec.swap_targets(text, way), terms, [spec.swap_targets(t, way) for t in terms]


def perplexity(i, of):
    """Numbers of a few hundred that look like perplexities, a tenth higher for counterfactuals."""
    return round((120 + (37 * i) % 211) * (1 + 0.1 * of) + 0.25 * ((i * (of + 3)) % 7), 4)


def redditbias():
    yield "data/dstc7/response_hyp.txt", "{}\n"
    for b in specs.BIAS_TYPES:
        spec = load_spec(f"redditbias/{b}")
        every, folder, names, found = sentences(b, 120), f"data/{b}", spec.groups, {}
        for split, n in SPLITS.items():
            found[split], every = every[:n], every[n:]
        stem = f"{folder}/reddit_comments_{b}"
        for split in ("valid", "test"):
            texts = found[split]
            rows = [
                (f"{split}{i}", True, f"well. {t}. so there.", t, 1, 1, perplexity(i, 0)) for i, t in enumerate(texts)
            ]
            first = ["id", "attribute_in_window", "comment", "comments_processed", *LABELS, "perplexity"]
            yield f"{stem}_{names[0]}_biased_{split}_reduced.csv", table(first, *rows)
            other = list(twins(b, texts))
            rows = [(a, c, t, o, perplexity(i, 1)) for i, (t, (o, a, c)) in enumerate(zip(texts, other))]
            second = "initial_demo,replaced_demo,comments,comments_processed,perplexity".split(",")
            yield f"{stem}_{names[1]}_biased_{split}_reduced.csv", table(second, *rows)
            for name, side in zip(names, (texts, [o for o, *_ in other])):
                yield f"text_files/{b}/{b}_{name}_biased_{split}_reduced.txt", lines(side)
        held_out = found["valid"] + found["test"]
        kept = [(f"{i}", True, f"well. {t}. so there.", t, 1, 1, perplexity(i, 0)) for i, t in enumerate(held_out)]
        yield f"{stem}_{names[0]}_processed_phrase_biased_testset_neg_attr_reduced.csv", table(first, *kept)
        rows = [([a], [c], t, o, perplexity(i, 1)) for i, t in enumerate(held_out) for o, a, c in [opposed(b, t)]]
        header = second if b != "race" else ["initial_attr", "replaced_attr", *second[2:]]
        yield f"{stem}_{names[0]}_processed_phrase_unbiased_testset_pos_attr_reduced.csv", table(header, *rows)
        train, opposites = found["train"], lambda texts: [opposed(b, t)[0] for t in texts]
        swapped = lambda texts: [o for o, *_ in twins(b, texts)]
        for case in ("", "_lowercase") if b == "religion2" else ("",):
            yield f"text_files/{b}/{b}_bias_manual{case}_train.txt", lines(train)
            yield f"text_files/{b}/{b}_bias_manual{case}_valid.txt", lines(held_out)
        for what, change in (("targets", swapped), ("attr", opposites)):
            yield f"text_files/{b}/{b}_bias_manual_swapped_{what}_train.txt", lines([*train, *change(train)])
        yield f"text_files/{b}/{b}_bias_manual_swapped_attr_test.txt", lines([*held_out, *opposites(held_out)])
        biased = [(f"{i}", "TRUE", f"well. {t}. so there.", t, "1", "1") for i, t in enumerate(train + held_out)]
        marks = itertools.cycle(("0", "0", "", "0", *(("re-state", "question") if b == "religion1" else ())))
        rest = [(f"r{i}", "TRUE", f"well. {t}. so there.", t, m, m) for i, (t, m) in enumerate(zip(every, marks))]
        header = ["id", "attribute_in_window", "comment", "phrase", *LABELS]
        yield f"{stem}_{names[0]}_processed_phrase_annotated.csv", table(header, *biased, *rest)
        raw = [f"Well. {t.capitalize()}! So there." for t in train + held_out]
        clean = [f"well. {t}! so there." for t in train + held_out]
        if b in ("religion1", "orientation"):
            ids = [f"{i}" if b == "religion1" else "" for i in range(len(raw))]
            own = [list(r) for r in zip(ids, raw, clean)] if b == "religion1" else [list(r) for r in zip(ids, clean)]
            columns = ["id", "comments", "comments_processed"] if b == "religion1" else ["id", "comments_processed"]
            yield f"{stem}_{names[0]}_processed.csv", table(columns, *own)
            rows = [(i, True, c, t) for i, c, t in zip(ids, clean, train + held_out)]
            for end in ("", "_2") if b == "religion1" else ("",):
                yield f"{stem}_{names[0]}_processed_phrase{end}.csv", table(header[:4], *rows)
        pairs = zip(spec.targets1, itertools.cycle(spec.targets2))
        yield f"{folder}/{b}_opposites.txt", lines(f'"{one}","{other}"' for one, other in pairs)
        yield f"{folder}/{b}_{names[0]}.txt", lines(spec.attributes1)
        yield f"{folder}/{b}_{names[0]}_pos.txt", lines(spec.attributes2)


def dialogpt():
    people, things = ("baker", "pilot", "gardener", "librarian"), ("a kite", "two maps", "an old boat", "the lamp")
    places = ("the harbour", "platform {n}", "the market", "a quiet street", "house {n}", "the lighthouse")
    every = itertools.product(people, things, places)
    frame = "our {p} took {t} to {w} this morning , {n} minutes before the rain ."
    texts = [frame.format(p=p, t=t, w=w.format(n=i), n=i) for i, (p, t, w) in enumerate(every, 2)]
    more = [f"{i} birds sat on the wire . then one of them flew off ." for i in range(2, 302)]
    yield "data/human.ref.6k.txt", lines(texts + more)
    yield "dstc/data/keys.2k.txt", lines(f"{i:056x}" for i in range(40))
    known = [chr(i) for i in [*range(33, 127), *range(161, 173), *range(174, 256)]]
    known += [chr(256 + i) for i in range(256 - len(known))]
    merges = ["Ġ t", "Ġ a", "h e", "i n", "r e", "o n", "Ġt he"]
    words = {token: i for i, token in enumerate([*known, *(m.replace(" ", "") for m in merges), "<|endoftext|>"])}
    yield "configs/117M/vocab.json", json.dumps(words)
    yield "configs/117M/merges.txt", lines(["#version: 0.2", *merges])
    sizes = {"n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024}
    yield "configs/117M/config.json", json.dumps(sizes | {"vocab_size": len(words), "layer_norm_epsilon": 1e-5})


# --- Chinese ---

SAID = (  # frames of CHBias: a target, an attribute
    "邻居家的{t}昨天种了{n}棵树，没有人说{a}",
    "有{n}位{t}在河边放风筝，谁会觉得{a}呢",
    "报上第{n}页写着{t}不{a}",
    "{t}今天烤了{n}个面包",
)
NUMBERS = "二三四五六七八九十百"


def chinese(bias_type, split, n):
    spec = chbias.released_spec(bias_type, split)
    targets, attributes = [t for t, _ in spec.pairs], [a for a, _ in spec.attribute_pairs]
    every = zip(range(n), itertools.cycle(targets), itertools.cycle(SAID), itertools.cycle(attributes))
    shift = {"train": 0, "valid": 3, "test": 6}[split]
    number = lambda i: NUMBERS[(i + shift) % 10] + NUMBERS[(i // 10 + shift) % 10]
    return [f"{frame.format(t=t, a=a, n=number(i))}。" for i, t, frame, a in every]


def chbias_release():
    for b in chbias.CATEGORIES:
        groups, stem = load_spec(f"chbias/{b}").groups, f"data/{b}/{b}"
        train = chinese(b, "train", 48)
        yield f"{stem}_train.txt", "\r\n".join(train)
        for swap, name in AUGMENTED.items():
            yield f"{stem}_{name}.txt", lines(sorted(train + chbias.swap_released(train, b, "train", swap)))
        for split in ("valid", "test"):
            texts = chinese(b, split, 24)
            for group, side in zip(groups, (texts, chbias.swap_released(texts, b, split))):
                yield f"{stem}_{group}_{split}.txt", "\r\n".join(side)
                if split == "test":
                    yield f"{stem}_{group}_test.csv", table(["", "replaced_sentence"], *enumerate(side))


TALK = (  # a question, an answer, and so on, of a thing
    ("你知道{x}吗？", "知道，{x}在城北，我去过{n}次。", "那里人多吗？", "不多，早上{n}点去最好。"),
    ("昨天我又看了{x}。", "好看吗？", "好看，看了{n}遍也不腻。"),
    ("{x}要等多久？", "大概{n}天。", "好的，谢谢你！", "不客气。"),
)
THINGS = {"film": ("小船", "星期六", "雨后"), "music": ("晨歌", "风铃", "归途"), "travel": ("石桥", "灯塔", "老码头")}


def talks(things, n, shift=0):
    """Dialogues as lists of turns."""
    for i in range(n):
        thing, number = things[i % len(things)], NUMBERS[i % 10] + NUMBERS[(i + shift) // 10 % 10]
        yield [turn.format(x=thing, n=number) for turn in TALK[(i + shift) % len(TALK)]]


def kdconv_release():
    for domain in kdconv.DOMAINS:
        for shift, split in enumerate(kdconv.SPLIT_FILES.values()):
            told = [f"{split}{turns[0]}" for turns in talks(THINGS[domain], 30)]
            dialogues = []
            for opening, turns in zip(told, talks(THINGS[domain], 30, shift)):
                about = {"attrs": [{"attrname": "地点", "attrvalue": "城北", "name": THINGS[domain][0]}]}
                messages = [{"message": t} for t in (opening, *turns[1:])]
                dialogues.append({"messages": [messages[0], about | messages[1], *messages[2:]], "name": opening})
            yield f"data/{domain}/{split}.json", json.dumps(dialogues, ensure_ascii=False, indent=2)


def characters():
    """The 3,755 characters of GB 2312's first level, by their places in it."""
    return [bytes([0xB0 + row, 0xA1 + i]).decode("gb2312") for row in range(40) for i in range(94 if row < 39 else 89)]


def cdial():
    marks = [*string.punctuation, *"，。！？、：；“”‘’（）《》…～"]
    words = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", *marks, *string.digits, *(f"##{d}" for d in string.digits)]
    words += [*characters(), "[speaker1]", "[speaker2]"]
    yield "config/cgpt/vocab.txt", lines(words)
    drop = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.1)
    sizes = {"n_ctx": 512, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 513, "n_special": 0}
    about = {"afn": "gelu", **drop, "initializer_range": 0.02, "layer_norm_epsilon": 1e-5, **sizes}
    yield "config/cgpt/config.json", json.dumps(about | {"vocab_size": len(words)}, indent=2)
    everything = [t for of in THINGS.values() for t in of]
    apart = [[" ".join(turn) for turn in turns] for turns in talks(everything, 150)]
    splits = {"valid": apart[:30], "test": apart[30:60], "train": apart[60:]}
    yield "data/toy_data.json", json.dumps(splits, ensure_ascii=False, indent=0)
    for split in ("train", "valid"):
        yield f"data/toy_{split}.txt", lines("\t".join(turns[:2]) for turns in splits[split])


# --- prompts, and words ---

AXES = {  # bucket by axis: what stands before a noun; ages, genders and the like, each in a few words
    "ability": {"auditory": ["Deaf", "hard-of-hearing"], "visual": ["blind"]},
    "age": {"child": ["four-year-old"], "young": ["teenage"], "old": [{"descriptor": "80-year-old", "article": "an"}]},
    "body_type": {"eye_color": ["green-eyed"], "hair": ["gray-haired", {"descriptor": "bald", "gender": "male"}]},
    "characteristics": {"misc": ["left-handed"], "job_status": ["retired"]},
    "cultural": {"misc": ["rural", "urban"]},
    "gender_and_sex": {"binary": [{"descriptor": "motherly", "gender": "female"}], "misc": ["nonbinary"]},
    "nationality": {"americas": ["Cuban"], "oceania": ["Samoan"], "misc": [{"descriptor": "US-born", "article": "a"}]},
    "nonce": {"misc": ["blicket", "doxy", "posher"]},
    "political_ideologies": {"misc": ["moderate", "independent"]},
    "race_ethnicity": {"misc": ["European", {"descriptor": "Latina", "gender": "female"}, "Polynesian"]},
    "religion": {"misc": ["Buddhist", "Quaker"]},
    "sexual_orientation": {"misc": ["gay", "straight"]},
    "socioeconomic_class": {"misc": ["working-class", "middle-class"]},
}  # fmt: skip
PHRASES = {
    "ability": [{"noun_phrase": "{article} {noun} with a cane", "plural_noun_phrase": "{noun} with canes"}],
    "body_type": ["{article} {noun} with freckles"],
    "characteristics": [{"noun_phrase": "a night owl", "plural_noun_phrase": "night owls"}],
}
NOUNS = {
    "female": [["woman", "women"], ["aunt", "aunts"], ["sister", "sisters"]],
    "male": [["man", "men"], ["uncle", "uncles"], ["brother", "brothers"]],
    "neutral": [["person", "people"], ["parent", "parents"], ["student", "students"]],
}
TEMPLATES = {
    "I'm {noun_phrase}.": {},
    "Hi! I'm {noun_phrase}.": {"first_turn_only": True},
    "My new tandem partner is {noun_phrase}.": {},
    "The first to arrive are {plural_noun_phrase}.": {},
    "This choir is made of {plural_noun_phrase}.": {"must_be_noun": True},
    "Shall we write a song about {plural_noun_phrase}?": {"must_be_noun": True},
    "On Sundays I bake bread, being {noun_phrase}.": {},
}


def holisticbias():
    for version in ("v1.0", "v1.1"):
        axes = AXES if version == "v1.0" else AXES | {"cultural": {"misc": ["rural", "urban", "seafaring"]}}
        made = {
            "descriptors": axes,
            "nouns": NOUNS,
            "sentence_templates": TEMPLATES,
            "standalone_noun_phrases": PHRASES,
        }
        for name, content in made.items():
            yield f"holistic_bias/dataset/{version}/{name}.json", json.dumps(content, indent=4)


WORDS = {
    "gender": "uncle - aunt,father - mother,brother - sister,king - queen,actor - actress,man - woman,men - women,"
    "boy - girl,husband - wife,son - daughter,he - she,his - her,waiter - waitress",
    "race": "going - goin,house - crib,cool - lit,relax - chill,hello - hey,very good - real good,going to - gonna",
}


def dialoguefairness():
    for name, pairs in WORDS.items():
        yield f"DebiasingMethods/CounterpartDataAugmentation/words/{name}_words.txt", lines(pairs.split(","))


# --- dialogues ---


def bookings(n, shift):
    """Dialogues of MultiWOZ: what a user wants, turn by turn, and the state after each."""
    areas, prices, days = (
        ("north", "south", "east", "west", "centre"),
        ("cheap", "moderate", "expensive"),
        ("monday", "friday"),
    )
    empty = {"area": "not mentioned", "pricerange": "not mentioned", "name": ""}
    found = {}
    for i in range(n):
        k, domain = i + shift, ("hotel", "restaurant")[i % 2]
        area, price, day = areas[k % 5], prices[k % 3], days[k // 2 % 2]
        states = [
            ({"pricerange": price}, {}),
            ({"pricerange": price, "area": area}, {}),
            ({"pricerange": price, "area": area}, {"day": day, "people": str(1 + k % 6)}),
        ]
        said = [
            (f"i 'd like a {price} {domain} , please .", f"which part of town for your {domain} ?"),
            (f"the {area} , if there is one .", f"there are {2 + k % 7} of them . shall i book one ?"),
            (f"yes , for {1 + k % 6} people on {day} .", "it is booked . anything else ?"),
            ("no , that is all .", "goodbye then !"),
        ]
        log = []
        for (user, system), (semi, book) in zip(said, [*states, states[-1]]):
            state = {domain: {"book": {"booked": [], **book}, "semi": {**empty, **semi}}}
            log += [{"text": user, "metadata": {}}, {"text": system, "metadata": state}]
        found[f"{'SNG' if i % 3 else 'MUL'}{shift:02}{i:02}.json"] = {"goal": {}, "log": log}
    return found


def convlab():
    for shift, (name, n) in enumerate({"train": 40, "val": 24, "test": 24}.items()):
        made = {k.removesuffix(".json"): v for k, v in bookings(n, shift).items()}
        yield f"data/multiwoz/{name}.json.zip", zipped(**{f"{name}.json": made})


def multiwoz():
    pairs = (
        ("it's", "it is"),
        ("don't", "do not"),
        ("i'd", "i would"),
        ("guest house", "guesthouse"),
        ("nite", "night"),
    )
    yield "utils/mapping.pair", lines("\t".join(p) for p in pairs)
    splits = [bookings(n, shift) for shift, n in enumerate((40, 24, 24))]
    data = {k: v for s in splits for k, v in s.items()}
    lists = {"valListFile.json": lines(splits[1]), "testListFile.json": lines(splits[2])}
    for version in ("2.0", "2.1"):
        yield f"data/MultiWOZ_{version}.zip", zipped(**{"data.json": data, **lists})


def conversations(n):
    asked = (
        "is the ferry running today ?",
        "who left the window open ?",
        "did anyone see the comet ?",
        "soup or salad ?",
    )
    told = (
        "yes , every {n} minutes .",
        "my uncle , {n} times this week .",
        "we saw it at {n} past nine .",
        "both , please .",
    )
    last = ("good to know .", "she said so , too .", "what a night !", "i love that place .")
    for i in range(n):
        yield [asked[i % 4], told[i // 4 % 4].format(n=i + 2), last[i // 16 % 4]][: 2 + i % 2]


def twitter():
    text = "\n\n\n\n".join("\n".join(turns) for turns in conversations(120)) + "\n"
    yield "TwitterConvCorpus.txt", text.replace("comet", "Comet")
    yield "TwitterLowerAsciiCorpus.txt", text


def chat_corpus():
    tweets = [turn for turns in conversations(1600) for turn in turns[:2]]
    for name in ("movie_subtitles_en", "twitter_en"):
        yield f"{name}.txt.gz", gzip.compress(lines(tweets[:40]).encode(), mtime=0)
    whole = gzip.compress(lines(tweets).encode(), mtime=0)
    for part, content in (("aa", whole[: len(whole) // 2]), ("ab", whole[len(whole) // 2 :])):
        yield f"twitter_en_big.txt.gz.part{part}", content


# --- labelled comments, and pairs ---

FELT = (
    "admiration amusement anger annoyance approval caring confusion curiosity desire disappointment disapproval "
    "disgust embarrassment excitement fear gratitude grief joy love nervousness optimism pride realization relief "
    "remorse sadness surprise neutral"
).split()
ABOUT = (
    "the new bridge",
    "this old song",
    "our long walk",
    "the third chapter",
    "her apple cake",
    "that foggy morning",
)


def comments_of(names, n):
    """Comments that name what they are labelled with."""
    for i in range(n):
        yield f"so much {names[i % len(names)]} about {ABOUT[i % 6]} , for the {i + 2} of us", i % len(names)


def goemotions_release():
    root = goemotions.RELEASE.removeprefix("monologg/GoEmotions-pytorch/")
    yield f"{root}/labels.txt", "\n".join(FELT)
    for name, n, first in (("train", 336, 0), ("dev", 84, 500), ("test", 84, 700)):
        rows = [
            (t.replace(" for ", f" {name} for "), label, f"m{first + i}")
            for i, (t, label) in enumerate(comments_of(FELT, n))
        ]
        two = lambda i, label: f"{label},{(label + 1) % 28}" if i % 9 == 8 else label
        yield f"{root}/{name}.tsv", lines(f"{t}\t{two(i, label)}\t{key}" for i, (t, label, key) in enumerate(rows))


def davidson():
    kinds = ("grumbling", "teasing", "gardening")
    header = ",count,hate_speech,offensive_language,neither,class,tweet".split(",")
    rows = [(i, 3, *(3 * (label == k) for k in range(3)), label, f"RT @someone{i}: {t} &amp; more")
            for i, (t, label) in enumerate(comments_of(kinds, 240))]  # fmt: skip
    yield "data/labeled_data.csv", table(header, *rows)


def sayings(n):
    pairs = (
        ("grandmothers", "teenagers", "age"),
        ("sailors", "bakers", "socioeconomic"),
        ("aunts", "uncles", "gender"),
    )
    for i in range(n):
        one, other, kind = pairs[i % 3]
        yield one, other, kind, f"{{}} waited {i + 2} minutes for the tram , as always ."


def crows_pairs():
    header = ["", "sent_more", "sent_less", "stereo_antistereo", *JUDGED]
    rows = [(i, text.format(one), text.format(other), ("stereo", "antistereo")[i % 4 == 3], kind, "[]", "a1", "[]")
            for i, (one, other, kind, text) in enumerate(sayings(30))]  # fmt: skip
    yield "data/crows_pairs_anonymized.csv", table(header, *rows)


def stereoset():
    data, labels = {"intrasentence": [], "intersentence": []}, ("stereotype", "anti-stereotype", "unrelated")
    for i, (one, _, kind, text) in enumerate(sayings(18)):
        said = [f"they were {word} ." for word in ("calm", "restless", "purple")]
        for way, texts in (("intrasentence", [f"{text.format(one)} {s}" for s in said]), ("intersentence", said)):
            about = [{"sentence": s, "gold_label": g, "id": f"{i}{g[0]}", "labels": []} for s, g in zip(texts, labels)]
            data[way].append(
                {"id": str(i), "target": one, "bias_type": kind, "context": text.format(one), "sentences": about}
            )
    yield "data/dev.json", json.dumps({"version": "1.1", "data": data})


MADE = {
    "umanlp/RedditBias": redditbias,
    "microsoft/DialoGPT": dialogpt,
    "hyintell/CHBias": chbias_release,
    "thu-coai/KdConv": kdconv_release,
    "thu-coai/CDial-GPT": cdial,
    "facebookresearch/ResponsibleNLP": holisticbias,
    "zgahhblhc/DialogueFairness": dialoguefairness,
    "ConvLab/ConvLab": convlab,
    "budzianowski/multiwoz": multiwoz,
    "Phylliida/Dialogue-Datasets": twitter,
    "marsan-ma/chat_corpus": chat_corpus,
    "monologg/GoEmotions-pytorch": goemotions_release,
    "t-davidson/hate-speech-and-offensive-language": davidson,
    "nyu-mll/crows-pairs": crows_pairs,
    "moinnadeem/StereoSet": stereoset,
}


def make_release(folder):
    """Write `mirror/` and `sources.tsv` into a folder: the real list with the ids and sizes of what is made up; files
    that nothing is made up for keep theirs, and cannot be had."""
    made = {(repository, path): content for repository, make in MADE.items() for path, content in make()}
    made |= {(repository, "LICENSE"): "Made up: nobody's.\n" for repository in MADE}
    listed = (files("redditbias_repro") / "resources" / "sources.tsv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(listed), delimiter="\t"))
    for row in rows:
        content = made.pop((row["repository"], row["path"]), None)
        if content is not None:
            content = content.encode() if isinstance(content, str) else content
            row |= {"git_blob_sha1": git_blob_sha1(content), "bytes": len(content)}
            path = Path(folder, "mirror", row["repository"], row["commit"], row["path"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    assert not {k for k in made if k[1] != "LICENSE"}, f"made up, and not registered: {sorted(made)}"
    with Path(folder, "sources.tsv").open("w", encoding="utf-8", newline="") as f:
        writer = csv.DictWriter(f, rows[0], delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
