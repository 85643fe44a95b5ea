"""The RTSP server's process, on GStreamer; it runs in Debian's Python."""

from __future__ import annotations

from typing import Any

from .behaviour import RtspBehaviour
from .child import Child, log
from .gst import CAMERA, Feed, GLib, Gst, GstRtsp, GstRtspServer

__all__: list[str] = []


def _factory(child: Child[RtspBehaviour]) -> Any:
    factory = GstRtspServer.RTSPMediaFactory()
    camera = CAMERA.format(gop=max(1, round(child.now.fps)))
    factory.set_launch(f"( {camera} ! rtph264pay name=pay0 pt=96 config-interval=-1 )")
    factory.set_shared(True)
    transports = GstRtsp.RTSPLowerTrans
    allowed = {
        "tcp": transports.TCP,
        "udp": transports.UDP,
        "both": transports.TCP | transports.UDP,
    }
    factory.set_protocols(allowed[child.now.transport])

    def begin(_factory: Any, media: Any) -> None:
        feed = Feed(child, media.get_element())
        media.connect("unprepared", lambda _media: feed.end())

    factory.connect("media-configure", begin)
    return factory


def _protect(server: Any, factory: Any, user: str, password: str) -> None:
    auth = GstRtspServer.RTSPAuth()
    token = GstRtspServer.RTSPToken()
    token.set_string("media.factory.role", "viewer")
    auth.add_basic(GstRtspServer.RTSPAuth.make_basic(user, password), token)
    server.set_auth(auth)
    permissions = GstRtspServer.RTSPPermissions()
    for right in ("access", "construct"):
        permissions.add_permission_for_role("viewer", f"media.factory.{right}", True)
    factory.set_permissions(permissions)


def _connected(_server: Any, client: Any) -> None:
    log("client connected")
    client.connect("closed", lambda _client: log("client left"))


def _main() -> None:
    Gst.init(None)
    child: Child[RtspBehaviour] = Child(RtspBehaviour)
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service(str(child.now.port))
    factory = _factory(child)
    if child.now.user:
        _protect(server, factory, child.now.user, child.now.password)
    server.get_mount_points().add_factory("/camera", factory)
    server.connect("client-connected", _connected)
    child.wait_until_due()
    if not server.attach(None):
        raise SystemExit(f"cannot listen on port {child.now.port}")
    child.ready()
    GLib.MainLoop().run()


if __name__ == "__main__":
    _main()
