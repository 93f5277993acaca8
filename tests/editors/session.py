"""A session with `harness lsp` by pygls, a client library of others.

    python3 tests/editors/session.py HARNESS

HARNESS is the binary. pygls has to be importable.
"""

import asyncio
import pathlib
import sys
import tempfile

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

TOOL = """---
parameters:
  name: { type: string, required: true }
script: |
  def run(args):
      return "Hello, " + args["name"]
tests:
  - name: greets
    args: { name: Ada }
    expect: { result: "Hello, Ada" }
---
Greet a person.
"""


async def session(harness: str, root: pathlib.Path) -> None:
    path = root / ".harness/tools/greet.md"
    path.parent.mkdir(parents=True)
    path.write_text(TOOL)
    client = LanguageClient("test", "1")
    published: asyncio.Queue = asyncio.Queue()
    shown: asyncio.Queue = asyncio.Queue()

    @client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def _(params: lsp.PublishDiagnosticsParams) -> None:
        published.put_nowait(params)

    @client.feature(lsp.WINDOW_SHOW_MESSAGE)
    def _(params: lsp.ShowMessageParams) -> None:
        shown.put_nowait(params.message)

    watched: asyncio.Queue = asyncio.Queue()

    @client.feature(lsp.CLIENT_REGISTER_CAPABILITY)
    def _(params: lsp.RegistrationParams) -> None:
        watched.put_nowait([one.method for one in params.registrations])

    await client.start_io(harness, "lsp")
    watching = lsp.DidChangeWatchedFilesClientCapabilities(dynamic_registration=True)
    workspace = lsp.WorkspaceClientCapabilities(did_change_watched_files=watching)
    started = await client.initialize_async(
        lsp.InitializeParams(capabilities=lsp.ClientCapabilities(workspace=workspace), root_uri=root.as_uri())
    )
    assert started.server_info.name == "harness", started
    client.initialized(lsp.InitializedParams())
    assert await watched.get() == ["workspace/didChangeWatchedFiles"]

    async def problems(version: int) -> list:
        while True:
            params = await published.get()
            if params.uri == uri and params.version == version:
                return [one.message for one in params.diagnostics]

    def change(version: int, text: str) -> None:
        client.text_document_did_change(
            lsp.DidChangeTextDocumentParams(
                text_document=lsp.VersionedTextDocumentIdentifier(uri=uri, version=version),
                content_changes=[lsp.TextDocumentContentChangeWholeDocument(text=text)],
            )
        )

    uri = path.as_uri()
    document = lsp.TextDocumentIdentifier(uri=uri)
    client.text_document_did_open(
        lsp.DidOpenTextDocumentParams(
            text_document=lsp.TextDocumentItem(uri=uri, language_id="markdown", version=1, text=TOOL)
        )
    )
    assert await problems(1) == []
    change(2, TOOL.replace("---\n", "---\ntimout_ms: 5\n", 1))
    assert await problems(2) == ["unknown key `timout_ms`, it is ignored\nhint: did you mean `timeout_ms`?"]
    whole = lsp.Range(start=lsp.Position(line=1, character=0), end=lsp.Position(line=1, character=9))
    actions = await client.text_document_code_action_async(
        lsp.CodeActionParams(text_document=document, range=whole, context=lsp.CodeActionContext(diagnostics=[]))
    )
    assert [action.title for action in actions] == ["Change to `timeout_ms`"], actions
    assert actions[0].edit.changes[uri][0].new_text == "timeout_ms", actions
    change(3, TOOL)
    assert await problems(3) == []
    inside = lsp.Position(line=5, character=9)
    hover = await client.text_document_hover_async(lsp.HoverParams(text_document=document, position=lsp.Position(line=1, character=3)))
    assert hover.contents.value.startswith("The parameters"), hover
    offered = await client.text_document_completion_async(
        lsp.CompletionParams(text_document=document, position=inside)
    )
    assert {"fs", "len", "sleep"} <= {item.label for item in offered.items}, offered
    lenses = await client.text_document_code_lens_async(lsp.CodeLensParams(text_document=document))
    assert [lens.command.title for lens in lenses] == ["run 1 case", "run this case"], lenses
    ran = await client.workspace_execute_command_async(
        lsp.ExecuteCommandParams(command=lenses[1].command.command, arguments=lenses[1].command.arguments)
    )
    assert await shown.get() == "tool `greet`: 1 case passed", ran
    await client.shutdown_async(None)
    client.exit(None)
    await asyncio.wait_for(client.stop(), 60)
    print("a session with the language server by pygls: as expected")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(asyncio.wait_for(session(sys.argv[1], pathlib.Path(folder).resolve()), 300))
