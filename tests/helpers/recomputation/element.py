"""The elements of a page as a tree, with a record of the characters that a recomputation has explained."""

from collections.abc import Iterator
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "hr", "input"}
WITHOUT_FIGURES = {"style", "script"}
# Attributes with figures that a reader sees: tooltips, and places and sizes of marks.
SHOWN = {"title", "aria-label", "d", "cx", "cy", "x", "y", "style", "src"}


class Text:
    """A text or an attribute of an element; `explained` has one flag per character."""

    def __init__(self, owner: "Element", name: str, value: str) -> None:
        self.owner, self.name = owner, name
        self.value = value.replace("\u00a0", " ").replace("\n", " ")
        self.explained = bytearray(len(value))

    def explain(self, start: int = 0, end: int | None = None) -> None:
        end = len(self.value) if end is None else end
        self.explained[start:end] = b"\x01" * (end - start)

    @property
    def unexplained(self) -> str:
        """The text with blanks in place of its explained characters."""
        return "".join(" " if done else char for char, done in zip(self.value, self.explained, strict=True))


class Element:
    """An element with its attributes and its children: elements and texts, in order."""

    def __init__(self, tag: str, attributes: dict[str, str], parent: "Element | None") -> None:
        self.tag, self.parent, self.children = tag, parent, []
        self.attributes = {name: Text(self, name, value or "") for name, value in attributes.items()}

    def __repr__(self) -> str:
        path = "" if self.parent is None else f"{self.parent!r} "
        name = "".join(f".{each}" for each in sorted(self.classes)) + "".join(
            f"#{self['id']}" for _ in self["id"][:1]
        )
        return f"{path}{self.tag}{name}"

    def __getitem__(self, name: str) -> str:
        return self.attributes[name].value if name in self.attributes else ""

    @property
    def classes(self) -> set[str]:
        return set(self["class"].split())

    def texts(self) -> Iterator[Text]:
        """Yield the texts in this element, in order."""
        for child in self.children:
            yield from child.texts() if isinstance(child, Element) else [child]

    @property
    def text(self) -> str:
        """The text in this element, with single blanks."""
        return " ".join("".join(each.value for each in self.texts()).split())

    def walk(self) -> Iterator["Element"]:
        """Yield this element and all elements in it, in order."""
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def all(self, tag: str, css_class: str = "") -> list["Element"]:
        """Return the elements below this one with a tag and, if given, a class, in order."""
        found = (each for each in self.walk() if each is not self and each.tag == tag)
        return [each for each in found if not css_class or css_class in each.classes]

    def first(self, tag: str, css_class: str = "") -> "Element":
        return self.all(tag, css_class)[0]

    def section(self, name: str) -> "Element | None":
        """Return the element with this id, or None."""
        return next((each for each in self.walk() if each["id"] == name), None)


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = self.open = Element("page", {}, None)

    def handle_starttag(self, tag, attributes):
        element = Element(tag, dict(attributes), self.open)
        self.open.children.append(element)
        if tag not in VOID:
            self.open = element

    def handle_startendtag(self, tag, attributes):
        self.open.children.append(Element(tag, dict(attributes), self.open))

    def handle_endtag(self, tag):
        assert self.open.tag == tag, f"</{tag}> closes {self.open!r}"
        self.open = self.open.parent

    def handle_data(self, data):
        self.open.children.append(Text(self.open, "", data))


def parse(page: str) -> Element:
    """Return the root of a page."""
    builder = _Builder()
    builder.feed(page)
    builder.close()
    return builder.root


def shown_texts(root: Element) -> Iterator[Text]:
    """Yield everything that a reader sees: texts, tooltips, places and sizes."""
    for element in root.walk():
        if WITHOUT_FIGURES & {element.tag}:
            continue
        yield from (each for each in element.children if isinstance(each, Text))
        yield from (each for name, each in element.attributes.items() if name in SHOWN)
