import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.WebSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** A client on java.net.http. */
class Client {
    /** On a busy machine. */
    static final Duration PATIENCE = Duration.ofSeconds(100);

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 4) {
            System.err.println("usage: Client requests|websocket CERTIFICATE URL COUNT|TEXT");
            System.exit(2);
        }
        HttpClient client = HttpClient.newBuilder().sslContext(trust(arguments[1])).build();
        URI url = URI.create(arguments[2]);
        if (arguments[0].equals("requests")) {
            requests(client, url, Integer.parseInt(arguments[3]));
        } else {
            websocket(client, url, arguments[3]);
        }
    }

    static SSLContext trust(String certificate) throws Exception {
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        try (InputStream file = Files.newInputStream(Path.of(certificate))) {
            CertificateFactory factory = CertificateFactory.getInstance("X.509");
            trusted.setCertificateEntry("gateway", factory.generateCertificate(file));
        }
        TrustManagerFactory managers =
                TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(trusted);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        return context;
    }

    /** Sends one request, then all others on its connection. Prints how many had which version, status and body. */
    static void requests(HttpClient client, URI url, int count) throws Exception {
        client.send(HttpRequest.newBuilder(url.resolve("/")).timeout(PATIENCE).build(), BodyHandlers.ofString());
        HttpRequest request = HttpRequest.newBuilder(url).timeout(PATIENCE).build();
        List<CompletableFuture<HttpResponse<String>>> sent =
                Stream.generate(() -> client.sendAsync(request, BodyHandlers.ofString()))
                        .limit(count)
                        .toList();
        TreeMap<String, Integer> counts = new TreeMap<>();
        for (CompletableFuture<HttpResponse<String>> response : sent) {
            HttpResponse<String> got = response.get();
            String key = got.version() + " " + got.statusCode() + " " + got.body();
            counts.merge(key, 1, Integer::sum);
        }
        System.out.println(counts);
    }

    /** Sends a text, closes after its echo, and prints both and the server's close. */
    static void websocket(HttpClient client, URI url, String text) throws Exception {
        CompletableFuture<String> end = new CompletableFuture<>();
        WebSocket.Listener listener = new WebSocket.Listener() {
            final StringBuilder received = new StringBuilder();

            @Override
            public CompletionStage<?> onText(WebSocket socket, CharSequence part, boolean last) {
                received.append(part);
                if (last) {
                    socket.sendClose(4001, "enough");
                }
                socket.request(1);
                return null;
            }

            @Override
            public CompletionStage<?> onClose(WebSocket socket, int code, String reason) {
                end.complete(received + " " + code + " " + reason);
                return null;
            }

            @Override
            public void onError(WebSocket socket, Throwable error) {
                end.completeExceptionally(error);
            }
        };
        WebSocket socket = client.newWebSocketBuilder().buildAsync(url, listener)
            .get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
        socket.sendText(text, true);
        System.out.println(end.get(PATIENCE.toSeconds(), TimeUnit.SECONDS));
    }
}
