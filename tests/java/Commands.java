// Runs one of Kafka's programs many times in one JVM: `Commands CLASS`, with the arguments of a run in each line of the
// input, between tabs. After each run comes a line with its exit code.

import java.io.*;
import java.lang.reflect.*;
import org.apache.kafka.common.utils.Exit;

public class Commands {
  static class Left extends RuntimeException {
    final int code;

    Left(int code) {
      this.code = code;
    }
  }

  public static void main(String[] args) throws Exception {
    Method run = Class.forName(args[0]).getMethod("main", String[].class);
    Exit.setExitProcedure((code, message) -> { throw new Left(code); });
    System.setErr(System.out);
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      int code = 0;
      try {
        run.invoke(null, (Object) line.split("\t"));
      } catch (InvocationTargetException e) {
        if (!(e.getCause() instanceof Left)) throw e;
        code = ((Left) e.getCause()).code;
      }
      System.out.println("exit " + code);
    }
  }
}
