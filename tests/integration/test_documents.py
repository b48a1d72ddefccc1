"""PDF, DOCX, PPTX, HTML and EPUB files become documents with pages and headings."""

from __future__ import annotations

import io
import logging
import sys
import zipfile

import pypdf
import pytest

from ragchat_retrieval.chunking import DocumentSplitter, TextSplitter
from ragchat_retrieval.chunking import formats as formats_module
from ragchat_retrieval.errors import DocumentTooLarge, InvalidDocument, MissingExtra
from ragchat_retrieval.filters import Filter
from ragchat_retrieval.index import HybridIndex
from ragchat_retrieval.ingest import ingest_directory
from ragchat_retrieval.testing.splitter_suite import check_passages
from ragchat_retrieval.values import Document


def pdf(*pages, title=None, password=None):
    """Writes a PDF; a page is its lines, and one without lines is a scan."""
    writer = pypdf.PdfWriter(io.BytesIO(raw_pdf(pages)), full=True)
    if title is not None:
        writer.add_metadata({"/Title": title})
    if password is not None:
        writer.encrypt(password, algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def raw_pdf(pages):
    font = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        font,
    ]
    for n, lines in enumerate(pages):
        shown = " T* ".join(f"({line}) Tj" for line in lines)
        content = f"BT /F1 12 Tf 14 TL 50 750 Td {shown} ET" if lines else ""
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {5 + 2 * n} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
    body, places = "%PDF-1.4\n", []
    for number, value in enumerate(objects, start=1):
        places.append(len(body))
        body += f"{number} 0 obj\n{value}\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    start = len(body)
    body += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    body += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n"
    return body.encode("latin-1")


def archive(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return out.getvalue()


WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"


def docx(*paragraphs):
    """Writes a Word file; a paragraph that begins with ``#`` is a heading."""
    body = "".join(
        '<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>{}</w:t></w:r></w:p>'.format(
            text.removeprefix("# ")
        )
        if text.startswith("#")
        else f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"
        for text in paragraphs
    )
    style = (
        f'<w:styles xmlns:w="{WORD}"><w:style w:type="paragraph" w:styleId="Heading1">'
        '<w:name w:val="heading 1"/></w:style></w:styles>'
    )
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    return archive(
        {
            "[Content_Types].xml": f'<Types xmlns="{TYPES}">'
            '<Default Extension="rels" '
            'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            '<Override PartName="/word/document.xml" '
            f'ContentType="{main}.document.main+xml"/>'
            f'<Override PartName="/word/styles.xml" ContentType="{main}.styles+xml"/></Types>',
            "_rels/.rels": f'<Relationships xmlns="{RELATIONS}"><Relationship Id="r1" '
            f'Type="{OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>',
            "word/_rels/document.xml.rels": f'<Relationships xmlns="{RELATIONS}">'
            f'<Relationship Id="r1" Type="{OFFICE}/styles" Target="styles.xml"/></Relationships>',
            "word/styles.xml": style,
            "word/document.xml": f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body>'
            "</w:document>",
        }
    )


def pptx(*slides):
    import pptx as library

    deck = library.Presentation()
    for title, text in slides:
        slide = deck.slides.add_slide(deck.slide_layouts[1 if title else 6])
        if title:
            slide.shapes.title.text = title
            slide.placeholders[1].text = text
    out = io.BytesIO()
    deck.save(out)
    return out.getvalue()


def epub(title, *chapters):
    items = "".join(
        f'<item id="c{n}" href="c{n}.xhtml" media-type="application/xhtml+xml"/>'
        for n in range(len(chapters))
    )
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    files = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": "<container><rootfiles>"
        '<rootfile full-path="OEBPS/content.opf"/></rootfiles></container>',
        "OEBPS/content.opf": '<package xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<metadata><dc:title>{title}</dc:title></metadata>"
        f"<manifest>{items}</manifest><spine>{spine}</spine></package>",
    }
    files |= {f"OEBPS/c{n}.xhtml": chapter for n, chapter in enumerate(chapters)}
    return archive(files)


HTML = (
    b"<html><head><title>Tea  page</title><script>steal()</script></head><body><nav>menu</nav>"
    b"<h1>Tea</h1><p>Green tea is grown in the hills.</p>"
    b"<table><tr><th>kind</th><th>price</th></tr><tr><td>green</td><td>3</td></tr></table></body></html>"
)


def read(data, suffix, splitter=None, **options):
    options.setdefault("id", "d")
    return (splitter or DocumentSplitter()).read(io.BytesIO(data), suffix, **options)


def split(document, splitter=None):
    passages = (splitter or DocumentSplitter()).split(document)
    check_passages(document, passages)
    return passages


# Reading


def test_a_pdf_keeps_its_pages_and_no_passage_crosses_them():
    document = read(
        pdf(["Tea is grown", "in the hills."], ["Coffee is", "roasted."], title="Drinks"), ".pdf"
    )
    assert document.title == "Drinks"
    assert document.metadata == {
        "document_format": "pdf",
        "document_pages": 2,
        "pages_without_text": 0,
    }
    passages = split(document)
    assert [(p.page, p.text) for p in passages] == [
        (1, "Tea is grown\nin the hills."),
        (2, "Coffee is\nroasted."),
    ]


def test_a_pdf_of_one_page_has_a_page_number():
    assert [p.page for p in split(read(pdf(["one"]), ".PDF"))] == [1]


def test_pages_without_a_text_layer_are_counted_and_do_not_shift_the_others():
    document = read(pdf([], ["two"], []), ".pdf")
    assert (document.metadata["document_pages"], document.metadata["pages_without_text"]) == (3, 2)
    assert [(p.page, p.text) for p in split(document)] == [(2, "two")]


def test_an_ocr_of_the_callers_reads_pages_without_text_alone():
    seen = []

    def ocr(page):
        seen.append((page.number, len(pypdf.PdfReader(io.BytesIO(page.data)).pages)))
        return "read by eye\f" if page.number == 1 else " "

    document = read(pdf([], ["two"], []), ".pdf", DocumentSplitter(ocr=ocr))
    assert seen == [(1, 1), (3, 1)]
    assert document.metadata["pages_without_text"] == 1
    assert [(p.page, p.text) for p in split(document)] == [(1, "read by eye"), (2, "two")]


def test_what_an_ocr_raises_is_not_hidden():
    def ocr(page):
        raise OSError("no engine")

    with pytest.raises(OSError, match="no engine"):
        read(pdf([]), ".pdf", DocumentSplitter(ocr=ocr))


def test_a_word_file_keeps_its_headings():
    document = read(docx("# Leave", "Employees get 25 days.", "# Travel", "By train."), ".docx")
    assert document.metadata == {"document_format": "docx"}
    assert [(p.headings, p.text, p.page) for p in split(document)] == [
        (("Leave",), "Employees get 25 days.", None),
        (("Travel",), "By train.", None),
    ]


def test_slides_are_pages():
    deck = pptx(("Tea", "grown in the hills"), ("", ""), ("Coffee", "roasted"))
    document = read(deck, ".pptx")
    assert document.metadata["document_pages"] == 3
    assert document.metadata["pages_without_text"] == 1
    assert [(p.page, p.headings, p.text) for p in split(document)] == [
        (1, ("Tea",), "grown in the hills"),
        (3, ("Coffee",), "roasted"),
    ]


def test_a_web_page_loses_its_scripts_and_keeps_its_tables():
    document = read(HTML, ".html")
    assert document.title == "Tea page"
    assert "steal" not in document.text
    texts = [(p.headings, p.text) for p in split(document)]
    assert texts[0] == ((), "menu")
    assert texts[1][0] == ("Tea",)
    assert "| green | 3 |" in texts[1][1]


@pytest.mark.parametrize("mark", ["utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("word", ["tea", "thé", "茶"])
def test_a_web_page_is_in_the_encoding_that_its_byte_order_mark_says(mark, word):
    page = f"<html><head><title>{word}</title></head><body>green {word}</body></html>"
    data = (page if mark != "utf-16-be" else f"\ufeff{page}").encode(mark)
    document = read(data, ".html")
    assert (document.title, document.text) == (word, f"green {word}")


def test_a_stray_byte_makes_no_other_encoding_of_a_web_page_that_says_it_is_utf_8():
    page = b'<head><meta charset="UTF-8"></head><body>na\xc3\xafve \xe9t\xc3\xa9</body>'
    assert read(page, ".html").text == "naïve \ufffdté"


def in_page(text, charset, said=None):
    declared = "" if said is None else f'<meta charset="{said}">'
    page = f"<html><head>{declared}<title>T</title></head><body><p>{text}</p></body></html>"
    return read(page.encode(charset), ".html").text


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("iso-8859-1", "cp1252"),
        ("Latin1", "cp1252"),
        ("us-ascii", "cp1252"),
        ("iso-8859-9", "cp1254"),
        ("utf-16", "utf-8"),
    ],
)
def test_a_web_page_that_names_a_smaller_encoding_is_in_the_one_that_browsers_read(said, meant):
    """Typographic quotes have no place in ISO 8859, and pages that name it have them."""
    assert in_page("It’s “fine” in the café", meant, said) == "It’s “fine” in the café"


@pytest.mark.parametrize(
    ("charset", "text"),
    [
        (
            "cp1252",
            "L’été dernier, l’élève préférait le café à la crème, où ça coûtait trois euros.",
        ),
        ("cp1252", "A situação não é fácil: às vezes há informações úteis, até amanhã."),
        ("cp1252", "Därför är det så att många människor åker till sjön på sommaren."),
        ("cp1252", "It’s “fine” – really."),
        ("cp1250", "Proszę zamknąć drzwi, gdyż jest późno i zimno. Źle się czuję."),
        ("cp1251", "Вчера мы ходили гулять в парк, потому что была хорошая погода."),
        ("cp1253", "Χθες πήγαμε βόλτα στο πάρκο επειδή ήταν καλή μέρα."),
        ("shift_jis", "今日は天気がいいので、公園を散歩しました。"),
        ("utf-8", "Crème brûlée"),
    ],
)
def test_a_web_page_that_names_no_encoding_is_in_the_one_that_fits(charset, text):
    """Where several do, in that of Western Europe, as browsers take it."""
    assert in_page(text, charset) == text


@pytest.mark.parametrize("charset", ["iso-8859-2", "shift_jis", "koi8-r", "gb18030"])
def test_a_web_page_is_in_the_encoding_that_it_says_it_is_in(charset):
    text = {"iso-8859-2": "žluťoučký kůň", "koi8-r": "привет"}.get(charset, "喝茶")
    page = f'<head><meta charset="{charset}"></head><body>{text}</body>'.encode(charset)
    assert read(page, ".html").text == text


def test_a_book_is_read_in_the_order_of_its_chapters():
    chapters = [f"<html><body><h1>Part {n}</h1><p>Text {n}.</p></body></html>" for n in range(3)]
    document = read(epub("On tea", *chapters), ".epub")
    assert document.title == "On tea"
    headings = [p.headings[-1] for p in split(document) if p.text.startswith("Text")]
    assert headings == ["Part 0", "Part 1", "Part 2"]


def test_the_callers_title_source_and_metadata_stand():
    document = read(pdf(["a"], title="x"), ".pdf", title="Mine", source="s", metadata={"team": 1})
    assert (document.title, document.source, document.metadata["team"]) == ("Mine", "s", 1)


# What can go wrong


@pytest.mark.parametrize("suffix", [".pdf", ".docx", ".pptx", ".epub"])
@pytest.mark.parametrize("data", [b"", b"secret words", b"PK\x03\x04 secret"], ids=ascii)
def test_a_damaged_file_is_a_typed_error_without_content(suffix, data):
    with pytest.raises(InvalidDocument) as caught:
        read(data, suffix, id="bad")
    assert caught.value.document_id == "bad"
    assert "secret" not in str(caught.value)


def test_a_cut_pdf_is_an_error_or_what_is_left_of_it():
    whole = pdf(["one"], ["two"])
    for end in range(0, len(whole), 97):
        try:
            document = read(whole[:end], ".pdf")
        except InvalidDocument:
            continue
        split(document)


def test_an_encrypted_pdf_says_so_and_one_with_an_empty_password_is_read():
    with pytest.raises(InvalidDocument, match="encrypted"):
        read(pdf(["one"], password="key"), ".pdf")
    assert read(pdf(["one"], password=""), ".pdf").text == "one"


def test_a_file_over_the_limit_and_an_archive_that_unpacks_to_too_much_are_refused(monkeypatch):
    with pytest.raises(DocumentTooLarge):
        read(b"x" * 11, ".pdf", limit=10)
    for limit in ("_UNPACKED", "_UNPACKED_MARKUP"):
        with monkeypatch.context() as patched:
            patched.setattr(formats_module, limit, 10_000)
            with pytest.raises(DocumentTooLarge, match="10000"):
                read(docx("a" * 20_000), ".docx")


def test_of_what_an_archive_unpacks_to_pictures_are_no_markup(monkeypatch):
    """Readers make a tree of markup, which takes several times its size."""
    monkeypatch.setattr(formats_module, "_UNPACKED_MARKUP", 10_000)
    file = io.BytesIO(docx("tea"))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("word/media/image1.PNG", b"0" * 20_000)
    assert "tea" in read(file.getvalue(), ".docx").text
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("word/more.XML", b"0" * 20_000)
    with pytest.raises(DocumentTooLarge):
        read(file.getvalue(), ".docx")


def test_a_web_page_that_is_nested_without_end_is_a_typed_error():
    with pytest.raises(InvalidDocument, match="RecursionError"):
        read(b"<div>" * 20_000 + b"x", ".html")


def test_an_unknown_suffix_is_refused():
    with pytest.raises(InvalidDocument):
        read(b"", ".xls")


@pytest.mark.parametrize("package", ["pypdf", "markitdown"])
def test_without_the_extra_the_error_names_it(monkeypatch, package):
    monkeypatch.setattr(formats_module, "find_spec", lambda name: None if name == package else 1)
    with pytest.raises(MissingExtra, match="documents"):
        read(pdf(["a"]), ".pdf")


def test_a_text_with_form_feeds_has_pages_and_others_have_none():
    assert [p.page for p in split(Document("d", "a\fb\f\fc"))] == [1, 2, 4]
    assert [p.page for p in split(Document("d", "a\n\nb"))] == [None]


# In a folder


@pytest.fixture
def index():
    return HybridIndex(splitter=TextSplitter(64, 8))


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "docs"
    root.mkdir()
    (root / "a.pdf").write_bytes(pdf(["Tea is grown here."], []))
    (root / "b.docx").write_bytes(docx("# Leave", "25 days."))
    (root / "c.html").write_bytes(HTML)
    (root / "d.md").write_text("# D\n\nText.\n", "utf-8")
    (root / "e.csv").write_text("name,price\n" + "tea,3\n" * 60, "utf-8")
    (root / "f.py").write_text("def f():\n    pass\n", "utf-8")
    return root


async def passages_of(index, document_id):
    return await index.store.neighbours(document_id, 0, 1000, scope=Filter())


async def test_the_suffix_chooses_how_a_file_is_read_and_split(index, folder):
    report = await ingest_directory(index, folder)
    assert (report.documents, report.errors, report.pages_without_text) == (6, (), 1)
    [tea] = await passages_of(index, "docs/a.pdf")
    assert (tea.page, tea.title, tea.text) == (1, "a.pdf", "Tea is grown here.")
    [leave] = await passages_of(index, "docs/b.docx")
    assert (leave.headings, leave.title) == (("Leave",), "Leave")
    assert (await passages_of(index, "docs/c.html"))[0].title == "Tea page"
    rows = await passages_of(index, "docs/e.csv")
    assert len(rows) > 1
    assert rows[-1].headings == ("name,price",)
    found = await index.search("where is tea grown", top_k=1)
    assert found[0].passage.page == 1


async def test_an_unchanged_file_is_not_read_again(index, folder, monkeypatch):
    await ingest_directory(index, folder)
    read_again = []
    true_extract = formats_module.extract

    def extract(data, form, **options):
        read_again.append(form)
        return true_extract(data, form, **options)

    monkeypatch.setattr("ragchat_retrieval.chunking.documents.extract", extract)
    report = await ingest_directory(index, folder)
    assert (report.skipped, report.documents, report.pages_without_text) == (6, 0, 1)
    assert read_again == []
    # Another splitter or other metadata change the document, and its text is still known.
    report = await ingest_directory(index, folder, metadata={"team": "blue"})
    assert (report.documents, read_again) == (6, [])
    (folder / "a.pdf").write_bytes(pdf(["Tea was grown here."], []))
    report = await ingest_directory(index, folder, metadata={"team": "blue"})
    assert (report.documents, read_again) == (1, ["pdf"])
    reading = DocumentSplitter(64, 8, ocr=lambda page: f"page {page.number}")
    report = await ingest_directory(index, folder, metadata={"team": "blue"}, documents=reading)
    assert (report.documents, report.pages_without_text, read_again) == (1, 0, ["pdf", "pdf"])


async def test_a_bad_file_is_reported_and_keeps_its_earlier_document(index, folder):
    await ingest_directory(index, folder)
    (folder / "a.pdf").write_bytes(b"%PDF-1.4 broken")
    report = await ingest_directory(index, folder)
    [error] = report.errors
    assert (error.error, report.deleted) == ("InvalidDocument", 0)
    assert "docs/a.pdf" in await index.document_ids()


async def test_without_the_extra_html_is_read_as_it_stands_and_a_warning_tells_the_rest(
    index, folder, monkeypatch, caplog
):
    """What was read with the extra is not taken for vanished."""
    await ingest_directory(index, folder)
    monkeypatch.setattr(formats_module, "find_spec", lambda _name: None)
    with caplog.at_level(logging.WARNING, "ragchat"):
        report = await ingest_directory(index, folder)
    assert (report.documents, report.skipped, report.deleted, report.errors) == (1, 3, 0, ())
    [record] = caplog.records
    assert record.getMessage().startswith("2 files need an extra")
    assert len(await index.document_ids()) == 6
    assert "<h1>" in (await index.store.document("docs/c.html", scope=Filter())).text


async def test_a_single_file_that_needs_the_extra_is_an_error(index, folder, monkeypatch):
    """Who names it meant it, and shall not be told that all is done."""
    monkeypatch.setattr(formats_module, "find_spec", lambda _name: None)
    report = await ingest_directory(index, folder / "a.pdf")
    [error] = report.errors
    assert error.error == "MissingExtra"
    assert "ragchat-toolkit[documents]" in error.message
    with pytest.raises(MissingExtra):
        await ingest_directory(index, folder / "a.pdf", on_error="raise")


def test_nothing_of_the_extra_is_imported_before_it_is_used(child_env):
    import subprocess

    code = (
        "import sys, ragchat_retrieval.ingest.directory, ragchat_retrieval.chunking\n"
        "print(sorted({'pypdf', 'markitdown', 'magika'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=child_env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_reading_a_document_reports_to_nobody(tmp_path, child_env):
    """What the extra loads keeps no record of its use; it would not where it finds a test."""
    import subprocess

    code = (
        "import io\n"
        "from ragchat_retrieval import DocumentSplitter\n"
        "page = io.BytesIO(b'<html><body><h1>Tea</h1><p>At four.</p></body></html>')\n"
        "print('At four.' in DocumentSplitter().read(page, '.html', id='page').text)"
    )
    known = {name: child_env[name] for name in ("PATH", "PYTHONPATH") if name in child_env}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**known, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "True\n"
    assert list(tmp_path.rglob("*")) == []
