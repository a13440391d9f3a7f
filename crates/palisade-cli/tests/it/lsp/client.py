"""A session of pytest-lsp with `palisade lsp`: every message is decoded by the types of the specification."""

import os
import pathlib

import pytest
import pytest_lsp
from lsprotocol import types
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: web # 😀
spec:
  hostNetwork: true
  containers:
    - name: web
      image: nginx
"""

SERVER = ClientServerConfig(server_command=[os.environ["PALISADE"], "lsp", "--stdio"])


async def session(lsp_client, editor):
    params = types.InitializeParams(capabilities=client_capabilities(editor))
    return await lsp_client.initialize_session(params)


@pytest_lsp.fixture(config=SERVER, params=["visual-studio-code", "neovim"])
async def client(request, lsp_client: LanguageClient):
    registered = []

    @lsp_client.feature(types.CLIENT_REGISTER_CAPABILITY)
    def register(params: types.RegistrationParams):
        registered.extend(item.method for item in params.registrations)

    result = await session(lsp_client, request.param)
    assert result.capabilities.position_encoding == types.PositionEncodingKind.Utf16
    yield
    await lsp_client.shutdown_session()


def opened(client, path: pathlib.Path, text: str) -> str:
    uri = path.as_uri()
    item = types.TextDocumentItem(uri=uri, language_id="yaml", version=1, text=text)
    client.text_document_did_open(types.DidOpenTextDocumentParams(text_document=item))
    return uri


@pytest.mark.asyncio
async def test_findings_hover_and_completion(client: LanguageClient, tmp_path):
    uri = opened(client, tmp_path / "pod é.yaml", POD)
    await client.wait_for_notification(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    found = {item.code: item for item in client.diagnostics[uri]}
    assert {"pss/hostNamespaces", "pss/runAsNonRoot", "pss/seccompProfile_restricted"} <= set(found), found
    assert found["pss/hostNamespaces"].range.start == types.Position(line=5, character=15)

    document = types.TextDocumentIdentifier(uri=uri)
    position = types.Position(line=5, character=4)
    hover = await client.text_document_hover_async(types.HoverParams(text_document=document, position=position))
    assert "| hostNetwork | `true` | pod's hostNetwork, line 6 |" in hover.contents.value

    change = types.TextDocumentContentChangePartial(
        range=types.Range(types.Position(4, 5), types.Position(4, 5)), text="\n  host"
    )
    version = types.VersionedTextDocumentIdentifier(uri=uri, version=2)
    client.text_document_did_change(types.DidChangeTextDocumentParams(text_document=version, content_changes=[change]))
    await client.wait_for_notification(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    assert [item.code for item in client.diagnostics[uri]] == ["yaml/syntax"]
    position = types.Position(line=5, character=6)
    items = await client.text_document_completion_async(types.CompletionParams(text_document=document, position=position))
    assert "hostUsers" in [item.label for item in items]


@pytest.mark.asyncio
async def test_quick_fixes(client: LanguageClient, tmp_path):
    uri = opened(client, tmp_path / "pod.yaml", POD)
    await client.wait_for_notification(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    document = types.TextDocumentIdentifier(uri=uri)
    everything = types.Range(types.Position(0, 0), types.Position(9, 0))
    context = types.CodeActionContext(diagnostics=list(client.diagnostics[uri]))
    params = types.CodeActionParams(text_document=document, range=everything, context=context)
    actions = await client.text_document_code_action_async(params)
    profile = next(action for action in actions if "seccompProfile" in action.title)
    assert profile.title.endswith("(safe)"), profile.title
    if profile.edit is None:
        profile = await client.code_action_resolve_async(profile)
    if profile.edit.document_changes:
        (changed,) = profile.edit.document_changes
        assert changed.text_document.version == 1
        edits = changed.edits
    else:
        edits = profile.edit.changes[uri]
    assert any("RuntimeDefault" in edit.new_text for edit in edits)
